//! What a query may cost: whatever multiplies is counted, and refused before it takes long or holds much.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on stops")]

mod common;

use bytes::Bytes;
use common::{List, NOW};
use otobus_items::query::{PageRequest, Rows, Watch, prepare, prepare_condition};
use otobus_items::{Refusal, limits};
use std::sync::atomic::{AtomicUsize, Ordering};

fn run(text: &str, parameters: &[(&str, String)], items: &List) -> Result<Rows, Refusal> {
    let parameters: Vec<(String, Bytes)> =
        parameters.iter().map(|(name, value)| ((*name).to_owned(), Bytes::from(value.clone()))).collect();
    let page = PageRequest { max_items: 10, ..PageRequest::default() };
    prepare(text, &parameters)?.run(&mut items.source(None), page, NOW)
}

fn long(bytes: usize) -> String {
    format!("\"{}\"", "a".repeat(bytes))
}

fn refused(text: &str, parameters: &[(&str, String)], items: &List, why: &str) {
    let refused = run(text, parameters, items).unwrap_err().to_string();
    assert!(refused.contains(why), "{refused}: {text:.80}");
}

// W-39
#[test]
fn a_condition_takes_what_is_left_to_its_request_and_no_more() {
    let item = |text: usize, pattern: &str| {
        format!(r#"{{"t":"{}","p":"{pattern}","n":1}}"#, "a".repeat(text)).into_bytes()
    };
    let like = prepare_condition("FROM c WHERE c.t LIKE c.p").unwrap();
    let mut steps = limits::CONDITION_STEPS;
    let plain = format!("%{}b%", "a".repeat(700_000));
    assert_eq!(like.holds(&item(1_000_000, &plain), NOW, &mut steps), Ok(false));
    assert!(
        steps > limits::CONDITION_STEPS / 2,
        "a plain pattern takes time that grows with the text: {steps}"
    );
    let mixed = format!("%{}_b%", "a".repeat(200_000));
    let refusal = like.holds(&item(1_000_000, &mixed), NOW, &mut steps).unwrap_err();
    assert_eq!(refusal.status(), (400, 0));
    assert!(refusal.to_string().contains("The condition takes more than"), "{refusal}");
    assert_eq!(steps, 0);
    let small = prepare_condition("FROM c WHERE c.n = 1").unwrap();
    assert!(small.holds(&item(1_000, ""), NOW, &mut steps).is_err(), "nothing is left");
    steps = limits::CONDITION_STEPS;
    assert_eq!(small.holds(&item(1_000, ""), NOW, &mut steps), Ok(true));
}

// W-39
#[test]
fn a_condition_counts_whatever_it_looks_at() {
    let words = "a ".repeat(100_000);
    let places = vec!["[1,2]"; 20_000].join(",");
    let item = format!(
        r#"{{"t":"{}","w":"{words}","n":[{}],"s":{{"type":"LineString","coordinates":[{places}]}},"r":"a[ab]*c","z":1}}"#,
        "a".repeat(1_000_000),
        vec!["1"; 100_000].join(","),
    );
    for part in [
        "c.z = 2",
        "CONTAINS(c.t, 'b')",
        "CONTAINS(c.t, 'B', true)",
        "STARTSWITH(UPPER(c.t), 'B')",
        "INDEX_OF(c.t, 'b') > 0",
        "REPLACE(c.t, 'a', 'b') = ''",
        "REVERSE(c.t) = 'b'",
        "TRIM(c.t) = 'b'",
        "c.t = (c.t || 'b')",
        "REGEXMATCH(c.t, c.r)",
        "FullTextContains(c.w, 'a a a b')",
        "ARRAY_CONTAINS(c.n, 2)",
        "SetEqual(c.n, [1, 2])",
        "ARRAY_SUM(c.n) = 0",
        "c.n = [1]",
        "ST_INTERSECTS(c.s, c.s) = false",
        "EXISTS(SELECT VALUE n FROM n IN c.n WHERE n = 2)",
        "StringToArray(c.t) = []",
    ] {
        let text = format!("FROM c WHERE {}", vec![part; 2_000].join(" OR "));
        let mut steps = limits::CONDITION_STEPS;
        let began = std::time::Instant::now();
        let held = prepare_condition(&text).unwrap().holds(item.as_bytes(), NOW, &mut steps);
        assert!(held.is_err(), "{part}: {held:?}, {steps} steps left");
        let took = began.elapsed();
        assert!(took.as_secs() < 20, "{part}: {took:?}");
    }
}

// W-39
#[test]
fn constants_are_computed_beforehand_only_while_that_is_little() {
    // It is read where everything else waits.
    let like = format!("('{0}' LIKE '%{0}_b%')", "a".repeat(60_000));
    let text = format!("SELECT VALUE [{}] FROM c", vec![like; 2].join(","));
    let began = std::time::Instant::now();
    prepare(&text, &[]).unwrap();
    assert!(began.elapsed().as_secs() < 10, "{:?}", began.elapsed());
    let items = List::new(vec!["{}".to_owned()]);
    let few = run("SELECT VALUE ['a' LIKE 'a%', UPPER('b'), 1 + 1] FROM c", &[], &items).unwrap();
    assert_eq!(few.values, ["[true,\"B\",2]"]);
    let patterns = (0..5_000).map(|nth| format!("REGEXMATCH(c.t, '({nth}|\\\\w){{5}}')")).collect::<Vec<_>>();
    refused(
        &format!("SELECT VALUE [{}] FROM c", patterns.join(",")),
        &[],
        &items,
        "REGEXMATCH are too large",
    );
}

// W-40
#[test]
fn what_is_made_of_a_long_text_many_times_is_charged() {
    let items = List::new(vec!["{}".to_owned()]);
    let text = [("@t", long(1_900_000))];
    for made in [
        "UPPER(@t)",
        "LOWER(@t)",
        "REVERSE(@t)",
        "LEFT(@t, 1800000)",
        "RIGHT(@t, 1800000)",
        "SUBSTRING(@t, 1, 1800000)",
        "TRIM(@t)",
        "CONCAT(@t, 'b')",
        "REPLACE(@t, 'aa', 'b')",
        "StringSplit(@t, 'aa')",
        "ToString([@t])",
    ] {
        let text_of = format!("SELECT VALUE ARRAY_LENGTH([{}])", vec![made; 400].join(","));
        refused(&text_of, &text, &items, "hold more than");
    }
    let list = [("@t", format!("\"[{}1]\"", "1,".repeat(900_000)))];
    refused("SELECT VALUE ARRAY_LENGTH(StringToArray(@t))", &list, &items, "hold more than");
    let few = run("SELECT VALUE ARRAY_LENGTH([UPPER(@t), UPPER(@t), TRIM(@t)])", &text, &items).unwrap();
    assert_eq!(few.values, ["3"]);
}

// W-40
#[test]
fn a_row_is_no_longer_than_a_page() {
    let items = List::new(vec!["{}".to_owned()]);
    let text = [("@t", long(1_900_000))];
    let of = |count: usize| format!("SELECT VALUE [{}]", vec!["@t"; count].join(","));
    assert_eq!(run(&of(2), &text, &items).unwrap().values[0].len(), 3_800_007);
    refused(&of(3), &text, &items, "A row of the query is longer than");
    for text_of in [
        format!("{} FROM c ORDER BY c.id", of(400)),
        format!("SELECT DISTINCT VALUE [{}] FROM c", vec!["@t"; 400].join(",")),
        format!("SELECT VALUE [{}] = []", vec!["@t"; 400].join(",")),
        format!("SELECT VALUE MAKELIST([{}]) FROM c", vec!["@t"; 400].join(",")),
    ] {
        refused(&text_of, &text, &items, "A row of the query is longer than");
    }
}

// W-40
#[test]
fn groups_and_distinct_values_are_charged_with_all_that_they_hold() {
    let numbers: Vec<String> = (0..2_000).map(|number| number.to_string()).collect();
    let item = format!(r#"{{"t":"{}","n":[{}]}}"#, "a".repeat(900_000), numbers.join(","));
    let items = List::new(vec![item]);
    refused("SELECT VALUE MAX(c.t) FROM c JOIN n IN c.n GROUP BY n", &[], &items, "too much memory");
    refused("SELECT n, c.t FROM c JOIN n IN c.n GROUP BY n, c.t", &[], &items, "too much memory");
    refused("SELECT DISTINCT n, c.t FROM c JOIN n IN c.n GROUP BY n, c.t", &[], &items, "too much memory");
    let aggregates: Vec<String> = (0..1_000).map(|nth| format!("MAX(n+{nth}) AS a{nth}")).collect();
    let text = format!("SELECT {} FROM c JOIN n IN c.n GROUP BY n", aggregates.join(","));
    refused(&text, &[], &items, "too much memory");
    let one = run("SELECT VALUE MAX(c.t) FROM c JOIN n IN c.n WHERE n < 500", &[], &items).unwrap();
    assert_eq!(one.values[0].len(), 900_002);
}

/// Lets so many looks pass.
struct Patience {
    looks: AtomicUsize,
    held: AtomicUsize,
}

impl Watch for Patience {
    fn goes_on(&self) -> Result<(), Refusal> {
        match self.looks.fetch_add(1, Ordering::Relaxed) < 5 {
            true => Ok(()),
            false => Err(Refusal::bad("enough")),
        }
    }

    fn hold(&self, bytes: usize) -> Result<(), Refusal> {
        self.held.fetch_add(bytes, Ordering::Relaxed);
        Ok(())
    }

    fn give_back(&self, bytes: usize) {
        self.held.fetch_sub(bytes, Ordering::Relaxed);
    }
}

// W-41
#[test]
fn a_query_looks_whether_it_shall_go_on_and_gives_back_what_it_held() {
    let list = vec!["1"; 1_000].join(",");
    let items = List::new((0..100).map(|_| format!("{{\"l\":[{list}]}}")).collect());
    for text in [
        "SELECT VALUE 1 FROM c JOIN a IN c.l JOIN b IN c.l WHERE false",
        "SELECT VALUE COUNT(1) FROM c JOIN a IN c.l JOIN b IN c.l",
        "SELECT VALUE a FROM c JOIN a IN c.l JOIN b IN c.l ORDER BY b, a OFFSET 1000 LIMIT 10",
        "SELECT DISTINCT VALUE a FROM c JOIN a IN c.l JOIN b IN c.l",
    ] {
        let patience = Patience { looks: AtomicUsize::new(0), held: AtomicUsize::new(0) };
        let page = PageRequest { max_items: 3, ..PageRequest::default() };
        let refused = prepare(text, &[])
            .unwrap()
            .run_watched(&mut items.source(None), page, NOW, &patience)
            .unwrap_err();
        assert_eq!(refused.to_string(), "enough", "{text}");
        assert_eq!(patience.held.load(Ordering::Relaxed), 0, "{text}");
    }
}

// W-40
#[test]
fn a_long_parameter_that_is_named_often_is_there_once() {
    let items = List::new(vec![r#"{"x":"aa"}"#.to_owned()]);
    let text = [("@t", long(1_900_000)), ("@l", format!("[{}1]", "1,".repeat(900_000)))];
    for part in
        ["c.x = @t", "c.x LIKE @t", "c.x IN (@t, 'b')", "c.l = @l", "ARRAY_CONTAINS(@l, c.x)", "c.x > -@l"]
    {
        let of = format!("SELECT VALUE c.x FROM c WHERE {}", vec![part; 3_000].join(" OR "));
        let began = std::time::Instant::now();
        let prepared = prepare(
            &of,
            &text
                .iter()
                .map(|(name, value)| ((*name).to_owned(), Bytes::from(value.clone())))
                .collect::<Vec<_>>(),
        )
        .unwrap();
        let wants = prepared.wants();
        assert!(wants.conjuncts.len() < 100);
        assert!(began.elapsed().as_secs() < 20, "{part}: {:?}", began.elapsed());
    }
    assert_eq!(
        run("SELECT VALUE c.x FROM c WHERE c.x = @s", &[("@s", "\"aa\"".to_owned())], &items).unwrap().values,
        ["\"aa\""]
    );
}
