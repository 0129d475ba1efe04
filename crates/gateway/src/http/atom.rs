//! The envelopes: an entry around one description, a feed around many (H-20 to H-27).

use super::description::{queue, rule, subscription, topic};
use super::failure::Failure;
use super::xml::{self, ATOM, Element, SERVICE_BUS, Writer};
use crate::auth::first_label;
use crate::iso;
use crate::iso::WallTime;
use broker::topic::TopicDescription;
use broker::topic::rule::RuleDescription;
use broker::topic::subscription::SubscriptionDescription;
use broker::{LocalTime, QueueDescription, Tier};

/// How the client reached us; answers name things by it.
#[derive(Debug, Clone)]
pub struct Site {
    /// `http` or `https`.
    pub scheme: &'static str,
    /// Host and port as the client named them.
    pub host: String,
    /// The version whose behaviour the client gets, and the one that it named.
    pub api_version: &'static str,
    pub named_version: Option<String>,
    /// Path and query as they came.
    pub asked: String,
    /// What the namespace is called.
    pub namespace: String,
}

impl Site {
    /// H-21: the path as it is; names consist of characters that need no escape.
    pub fn address(&self, path: &str) -> String {
        let version = self.named_version.iter().map(|version| format!("?api-version={version}"));
        format!("{}://{}/{path}{}", self.scheme, self.host, version.collect::<String>())
    }

    /// What was asked for, letter by letter: legacy clients take names out of it (K-29).
    pub fn asked_address(&self) -> String {
        format!("{}://{}{}", self.scheme, self.host, self.asked)
    }

    /// What the client calls the namespace: by the host that it uses in the cloud, else by its name (K-31).
    fn called(&self) -> &str {
        let host = self.host.split(':').next().unwrap_or_default();
        match host.to_ascii_lowercase().ends_with(".servicebus.windows.net") {
            true => first_label(host),
            false => &self.namespace,
        }
    }
}

/// A page of a list.
#[derive(Debug, Clone, Copy)]
pub struct Page {
    pub skip: usize,
    pub top: usize,
    pub has_more: bool,
    pub now: WallTime,
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

/// What an entry says of what it describes.
#[derive(Debug)]
pub struct Heading<'a> {
    /// Where it is, in the exact spelling that names are read from (H-21).
    path: String,
    /// Its name alone (H-20).
    title: &'a str,
    published: LocalTime,
    updated: LocalTime,
    /// Queues and topics name the namespace as their author; what is below a topic does not.
    has_author: bool,
}

/// What may be in an entry.
pub trait Describe {
    fn heading(&self) -> Heading<'_>;
    fn write(&self, site: &Site, writer: &mut Writer);
}

/// The heading of a queue or a topic.
fn of_entity(path: &str, published: LocalTime, updated: LocalTime) -> Heading<'_> {
    Heading { path: path.to_owned(), title: path, published, updated, has_author: true }
}

impl Describe for QueueDescription {
    fn heading(&self) -> Heading<'_> {
        of_entity(&self.path, self.created, self.updated)
    }

    fn write(&self, site: &Site, writer: &mut Writer) {
        queue::write(self, site.api_version, writer);
    }
}

impl Describe for TopicDescription {
    fn heading(&self) -> Heading<'_> {
        of_entity(&self.path, self.created, self.updated)
    }

    fn write(&self, site: &Site, writer: &mut Writer) {
        topic::write(self, site.api_version, writer);
    }
}

impl Describe for SubscriptionDescription {
    fn heading(&self) -> Heading<'_> {
        let path = format!("{}/Subscriptions/{}", self.topic, self.name);
        let (published, updated) = (self.created, self.updated);
        Heading { path, title: &self.name, published, updated, has_author: false }
    }

    fn write(&self, _: &Site, writer: &mut Writer) {
        subscription::write(self, writer);
    }
}

impl Describe for RuleDescription {
    fn heading(&self) -> Heading<'_> {
        let path = format!("{}/Subscriptions/{}/Rules/{}", self.topic, self.subscription, self.rule.name);
        let (published, updated) = (self.created, self.created);
        Heading { path, title: &self.rule.name, published, updated, has_author: false }
    }

    fn write(&self, _: &Site, writer: &mut Writer) {
        rule::write(self, writer);
    }
}

/// An entry that stands alone.
pub fn entry(described: &impl Describe, site: &Site) -> String {
    let mut writer = Writer::default();
    write_entry(described, &site.asked_address(), site, &[("xmlns", ATOM)], &mut writer);
    writer.finish()
}

/// The namespace as everybody may see it: a list of nothing (K-27).
pub fn root(now: WallTime, site: &Site) -> String {
    let mut writer = Writer::default();
    writer
        .start("feed", &[("xmlns", ATOM)])
        .leaf_with("title", &[("type", "text")], site.called())
        .leaf("id", &site.asked_address())
        .leaf("updated", &iso::date_in_seconds(now.0))
        .end();
    writer.finish()
}

/// A feed. Links come in the order that every client can live with: first to itself, then to the next page, no others,
/// and the second only if there is a next page (H-27). `path` is where the list is.
pub fn feed(title: &str, path: &str, described: &[impl Describe], page: Page, site: &Site) -> String {
    let itself = site.address(path);
    let separator = if itself.contains('?') { '&' } else { '?' };
    let paged = |skip: usize| format!("{itself}{separator}$skip={skip}&$top={}", page.top);
    let mut writer = Writer::default();
    writer
        .start("feed", &[("xmlns", ATOM)])
        .leaf_with("title", &[("type", "text")], title)
        .leaf("id", &site.asked_address())
        .leaf("updated", &iso::date_in_seconds(page.now.0))
        .empty("link", &[("rel", "self"), ("href", &paged(page.skip))]);
    if page.has_more {
        writer.empty("link", &[("rel", "next"), ("href", &paged(page.skip + described.len()))]);
    }
    for each in described {
        write_entry(each, &site.address(&each.heading().path), site, &[("xml:base", &itself)], &mut writer);
    }
    writer.end();
    writer.finish()
}

fn write_entry(
    described: &impl Describe,
    id: &str,
    site: &Site,
    attributes: &[(&str, &str)],
    writer: &mut Writer,
) {
    let heading = described.heading();
    let address = site.address(&heading.path);
    writer
        .start("entry", attributes)
        .leaf("id", id)
        .leaf_with("title", &[("type", "text")], heading.title)
        .leaf("published", &iso::date_in_seconds(heading.published.0))
        .leaf("updated", &iso::date_in_seconds(heading.updated.0));
    if heading.has_author {
        writer.start("author", &[]).leaf("name", &site.namespace).end();
    }
    writer
        .empty("link", &[("rel", "self"), ("href", &address)])
        .start("content", &[("type", "application/xml")]);
    described.write(site, writer);
    writer.end().end();
}

/// The namespace as an entry (HX-1.8.1). It tells its tier, and one without quotas the highest that there is (K-20).
pub fn namespace_entry(created: LocalTime, tier: Tier, site: &Site) -> String {
    let (tier, has_units) = match tier {
        Tier::Basic | Tier::Standard => (tier, false),
        Tier::Premium | Tier::Unlimited => (Tier::Premium, true),
    };
    let address = site.address("$namespaceinfo");
    let mut writer = Writer::default();
    writer
        .start("entry", &[("xmlns", ATOM)])
        .leaf("id", &site.asked_address())
        .leaf_with("title", &[("type", "text")], site.called())
        .leaf("updated", &iso::date_in_seconds(created.0))
        .start("author", &[])
        .leaf("name", site.called())
        .end()
        .empty("link", &[("rel", "self"), ("href", &address)])
        .start("content", &[("type", "application/xml")])
        .start("NamespaceInfo", &[("xmlns", SERVICE_BUS), ("xmlns:i", xml::SCHEMA_INSTANCE)])
        .leaf("CreatedTime", &iso::date(created.0))
        .leaf("MessagingSKU", tier.name());
    if has_units {
        writer.leaf("MessagingUnits", "1");
    }
    writer
        .leaf("ModifiedTime", &iso::date(created.0))
        .leaf("Name", site.called())
        .leaf("NamespaceType", "Messaging")
        .end()
        .end()
        .end();
    writer.finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use broker::QueueSettings;

    fn site() -> Site {
        Site {
            scheme: "https",
            host: "mine.example:5671".into(),
            api_version: "2021-05",
            named_version: Some("2021-05".into()),
            asked: "/Q/One?api-version=2021-05".into(),
            namespace: "mine".into(),
        }
    }

    fn queue(path: &str) -> QueueDescription {
        QueueDescription {
            path: path.into(),
            settings: QueueSettings::default(),
            max_message_kilobytes: 1_024,
            access: Vec::new(),
            created: LocalTime(1_577_836_800_000),
            updated: LocalTime(1_577_836_801_999),
            accessed: None,
            counts: broker::Counts::default(),
            bytes: 0,
        }
    }

    // H-20, H-21, H-29
    #[test]
    fn an_entry_names_the_queue_in_title_and_id() {
        let text = entry(&queue("Q/One"), &site());
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
        let text = entry(&queue("q"), &site());
        assert!(description(text.as_bytes()).unwrap().is(SERVICE_BUS, "QueueDescription"));
    }

    // K-29
    #[test]
    fn an_id_repeats_what_was_asked_for_letter_by_letter() {
        let asked = |asked: &str, named_version: Option<&str>| Site {
            asked: asked.into(),
            named_version: named_version.map(str::to_owned),
            ..site()
        };
        let text = entry(&queue("Q/One"), &asked("/q/ONE/?enrich=true", None));
        assert!(text.contains("<id>https://mine.example:5671/q/ONE/?enrich=true</id>"), "{text}");
        assert!(text.contains("href=\"https://mine.example:5671/Q/One\""), "{text}");
        let page = Page { skip: 0, top: 1, has_more: true, now: WallTime(0) };
        let site = asked("/$Resources/Queues/", None);
        let text = feed("Queues", "$Resources/queues", &[queue("a")], page, &site);
        assert!(text.contains("<id>https://mine.example:5671/$Resources/Queues/</id>"), "{text}");
        assert!(text.contains("<id>https://mine.example:5671/a</id>"), "{text}");
        assert!(text.contains("/$Resources/queues?$skip=1&amp;$top=1"), "{text}");
    }

    // K-31
    #[test]
    fn a_namespace_is_called_as_the_client_calls_it() {
        for (host, name) in [
            ("Yours.servicebus.windows.net:5671", "Yours"),
            ("localhost:5300", "mine"),
            ("other.example", "mine"),
        ] {
            let text = namespace_entry(LocalTime(0), Tier::Unlimited, &Site { host: host.into(), ..site() });
            assert!(text.contains(&format!("<Name>{name}</Name>")), "{text}");
        }
    }

    // K-27
    #[test]
    fn the_namespace_itself_is_a_feed() {
        let root = xml::read(root(WallTime(0), &site()).as_bytes()).unwrap();
        assert!(root.is(ATOM, "feed"));
    }

    // H-27
    #[test]
    fn a_feed_links_to_itself_and_then_to_the_next_page_if_there_is_one() {
        let page = |has_more| Page { skip: 4, top: 2, has_more, now: WallTime(0) };
        let links = |text: &str| -> Vec<String> {
            let head = text.split("<entry").next().unwrap();
            head.split("<link ").skip(1).map(|link| link.split("/>").next().unwrap().to_owned()).collect()
        };
        let address = "https://mine.example:5671/$Resources/queues?api-version=2021-05&amp;$skip=";
        let itself = format!("rel=\"self\" href=\"{address}4&amp;$top=2\"");
        let next = format!("rel=\"next\" href=\"{address}6&amp;$top=2\"");
        let queues = [queue("a"), queue("b")];
        assert_eq!(
            links(&feed("Queues", "$Resources/queues", &queues, page(true), &site())),
            [itself.clone(), next]
        );
        assert_eq!(links(&feed("Queues", "$Resources/queues", &queues, page(false), &site())), [itself]);
    }

    #[test]
    fn an_empty_feed_is_a_feed() {
        let text = feed(
            "Queues",
            "$Resources/queues",
            &[] as &[QueueDescription; 0],
            Page { skip: 9, top: 2, has_more: false, now: WallTime(0) },
            &site(),
        );
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
