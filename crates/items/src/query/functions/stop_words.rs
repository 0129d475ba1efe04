//! Words that say nothing of what a text is about. The service leaves them out before it scores; its list is not published, and this one
//! is made so that published rankings of the service come out the same (CX-13.9).

use std::collections::HashSet;
use std::sync::LazyLock;

static ENGLISH: LazyLock<HashSet<&str>> = LazyLock::new(|| LIST.split(' ').collect());

/// Of English; in small letters.
pub fn is_stop_word(word: &str) -> bool {
    ENGLISH.contains(word)
}

const LIST: &str = "\
    a able about above according accordingly across actually after afterwards again against all allow \
    allows almost alone along already also although always am among amongst amount an and another any \
    anybody anyhow anyone anything anyway anyways anywhere apart appear appropriate are around as aside \
    ask asking at available away awfully back be became because become becomes becoming been before \
    beforehand behind being believe below beside besides best better between beyond both but by call came \
    can cannot cant causes certain certainly clearly come comes con concerning consequently consider \
    considering contain containing contains corresponding could course de definitely describe described \
    despite did different do does doing done down downwards due during each eight either eleven else \
    elsewhere enough especially etc even ever every everybody everyone everything everywhere ex exactly \
    except far few fifteen fifth fifty first five followed following follows for former formerly forth \
    forty found four from further furthermore get gets getting give given gives go goes going gone got \
    gotten had happens hardly has have having he help hence her here hereafter hereby herein hereupon hers \
    herself hi him himself his hopefully how howbeit however hundred i ie if immediate in inasmuch indeed \
    insofar instead into inward is it its itself just keep keeps kept know known knows last lately later \
    latter latterly least less lest let like liked likely little look looking looks made mainly many may \
    maybe me mean meanwhile merely might mine more moreover most mostly much must my myself name namely \
    near nearly necessary need needs neither never nevertheless new next nine no nobody non none noone nor \
    normally not nothing now nowhere obviously of off often oh ok okay old on once one ones only onto or \
    other others otherwise ought our ours ourselves out outside over overall own part particular \
    particularly per perhaps placed please plus possible presumably probably provides put quite rather \
    really regarding regardless regards relatively respectively s said same saw say saying says second \
    secondly see seeing seem seemed seeming seems seen self selves sent seven several shall she should \
    show since six sixty so some somebody somehow someone something sometime sometimes somewhat somewhere \
    soon still such sure t take taken tell ten tends than that the their theirs them themselves then \
    thence there thereafter thereby therefore therein thereupon these they think third this thorough \
    thoroughly those though three through throughout thru thus to together too took toward towards tried \
    tries truly try trying twelve twenty twice two under unfortunately unless unlikely until unto up upon \
    us use used useful uses using usually value various very via vs want wants was way we welcome well \
    went were what whatever when whence whenever where whereafter whereas whereby wherein whereupon \
    wherever whether which while who whoever whole whom whose why will willing wish with within without \
    wonder would yes yet you your yours yourself yourselves zero";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_word_of_the_list_is_one_word_and_stands_in_it_once() {
        assert_eq!(ENGLISH.len(), LIST.split(' ').count());
        assert!(
            LIST.split(' ')
                .all(|word| !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_lowercase()))
        );
        assert!(is_stop_word("the") && is_stop_word("also") && !is_stop_word("bicycle"));
    }
}
