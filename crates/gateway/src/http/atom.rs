//! The envelopes: an entry around one description, a feed around many (H-20 to H-27).

use super::description::write_queue;
use super::failure::Failure;
use super::xml::{self, ATOM, Element, SERVICE_BUS, Writer};
use crate::iso;
use broker::{QueueDescription, Time};

/// How the client reached us; answers name things by it.
#[derive(Debug, Clone)]
pub struct Site {
    /// `http` or `https`.
    pub scheme: &'static str,
    /// Host and port as the client named them.
    pub host: String,
    pub api_version: String,
}

impl Site {
    /// H-21: the path as it is; names consist of characters that need no escape.
    fn address(&self, path: &str) -> String {
        format!("{}://{}/{path}?api-version={}", self.scheme, self.host, self.api_version)
    }

    fn namespace(&self) -> &str {
        self.host.split(['.', ':']).next().unwrap_or_default()
    }
}

/// A page of a list.
#[derive(Debug, Clone, Copy)]
pub struct Page {
    pub skip: usize,
    pub top: usize,
    pub has_more: bool,
    pub now: Time,
}

/// Finds the description in a request: entry, content, and then whatever the bus has to say (H-10).
pub fn description(body: &[u8]) -> Result<Element, Failure> {
    let root = xml::read(body)?;
    let content = root.is(ATOM, "entry").then(|| root.child(ATOM, "content")).flatten();
    content
        .and_then(|content| content.children.iter().find(|child| *child.namespace == *SERVICE_BUS))
        .cloned()
        .ok_or_else(|| {
            Failure::Bad("The body is not an Atom entry with a description of an entity.".to_owned())
        })
}

/// An entry that stands alone.
pub fn queue_entry(queue: &QueueDescription, site: &Site) -> String {
    let mut writer = Writer::default();
    write_entry(queue, site, &[("xmlns", ATOM)], &mut writer);
    writer.finish()
}

/// A feed. Links come in the order that every client can live with: first to itself, then to the next page, no others,
/// and the second only if there is a next page (H-27).
pub fn queue_feed(queues: &[QueueDescription], page: Page, site: &Site) -> String {
    let itself = site.address("$Resources/queues");
    let paged = |skip: usize| format!("{itself}&$skip={skip}&$top={}", page.top);
    let mut writer = Writer::default();
    writer
        .start("feed", &[("xmlns", ATOM)])
        .leaf_with("title", &[("type", "text")], "Queues")
        .leaf("id", &itself)
        .leaf("updated", &iso::date_in_seconds(page.now))
        .empty("link", &[("rel", "self"), ("href", &paged(page.skip))]);
    if page.has_more {
        writer.empty("link", &[("rel", "next"), ("href", &paged(page.skip + queues.len()))]);
    }
    for queue in queues {
        write_entry(queue, site, &[("xml:base", &itself)], &mut writer);
    }
    writer.end();
    writer.finish()
}

fn write_entry(queue: &QueueDescription, site: &Site, attributes: &[(&str, &str)], writer: &mut Writer) {
    let address = site.address(&queue.path);
    writer
        .start("entry", attributes)
        .leaf("id", &address)
        .leaf_with("title", &[("type", "text")], &queue.path)
        .leaf("published", &iso::date_in_seconds(queue.created))
        .leaf("updated", &iso::date_in_seconds(queue.updated))
        .start("author", &[])
        .leaf("name", site.namespace())
        .end()
        .empty("link", &[("rel", "self"), ("href", &address)])
        .start("content", &[("type", "application/xml")]);
    write_queue(queue, &site.api_version, writer);
    writer.end().end();
}

#[cfg(test)]
mod tests {
    use super::*;
    use broker::QueueSettings;

    fn site() -> Site {
        Site { scheme: "https", host: "mine.example:5671".into(), api_version: "2021-05".into() }
    }

    fn queue(path: &str) -> QueueDescription {
        QueueDescription {
            path: path.into(),
            settings: QueueSettings::default(),
            created: Time(1_577_836_800_000),
            updated: Time(1_577_836_801_999),
            accessed: None,
            counts: broker::Counts::default(),
            bytes: 0,
        }
    }

    // H-20, H-21, H-29
    #[test]
    fn an_entry_names_the_queue_in_title_and_id() {
        let text = queue_entry(&queue("Q/One"), &site());
        let envelope = "<entry xmlns=\"http://www.w3.org/2005/Atom\">\
            <id>https://mine.example:5671/Q/One?api-version=2021-05</id><title type=\"text\">Q/One</title>\
            <published>2020-01-01T00:00:00Z</published><updated>2020-01-01T00:00:01Z</updated>\
            <author><name>mine</name></author>\
            <link rel=\"self\" href=\"https://mine.example:5671/Q/One?api-version=2021-05\"/>\
            <content type=\"application/xml\"><QueueDescription xmlns=";
        assert!(text.starts_with(envelope), "{text}");
        assert!(text.ends_with("</QueueDescription></content></entry>"));
    }

    #[test]
    fn an_answer_can_be_sent_back_as_a_request() {
        let text = queue_entry(&queue("q"), &site());
        assert!(description(text.as_bytes()).unwrap().is(SERVICE_BUS, "QueueDescription"));
    }

    // H-27
    #[test]
    fn a_feed_links_to_itself_and_then_to_the_next_page_if_there_is_one() {
        let page = |has_more| Page { skip: 4, top: 2, has_more, now: Time(0) };
        let links = |text: &str| -> Vec<String> {
            let head = text.split("<entry").next().unwrap();
            head.split("<link ").skip(1).map(|link| link.split("/>").next().unwrap().to_owned()).collect()
        };
        let address = "https://mine.example:5671/$Resources/queues?api-version=2021-05&amp;$skip=";
        let itself = format!("rel=\"self\" href=\"{address}4&amp;$top=2\"");
        let next = format!("rel=\"next\" href=\"{address}6&amp;$top=2\"");
        let queues = [queue("a"), queue("b")];
        assert_eq!(links(&queue_feed(&queues, page(true), &site())), [itself.clone(), next]);
        assert_eq!(links(&queue_feed(&queues, page(false), &site())), [itself]);
    }

    #[test]
    fn an_empty_feed_is_a_feed() {
        let text = queue_feed(&[], Page { skip: 9, top: 2, has_more: false, now: Time(0) }, &site());
        let root = xml::read(text.as_bytes()).unwrap();
        assert!(root.is(ATOM, "feed"));
        assert!(root.child(ATOM, "entry").is_none());
    }

    #[test]
    fn a_body_without_a_description_is_refused() {
        for body in ["<entry/>", "<a/>", "<entry xmlns=\"http://www.w3.org/2005/Atom\"><content/></entry>"] {
            assert!(matches!(description(body.as_bytes()), Err(Failure::Bad(_))), "{body}");
        }
    }
}
