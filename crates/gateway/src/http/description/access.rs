//! Authorization rules as XML (HX-1.8.2): keys come and go in clear, so only who may manage sees them.

use super::super::failure::Failure;
use super::super::xml::{Element, SERVICE_BUS, Writer};
use crate::iso;
use broker::access::Key;
use broker::{AccessRule, LocalTime};

/// Makes up keys: what a new rule gets when the client gives it none.
pub type Keys<'a> = dyn FnMut() -> String + Send + 'a;

/// Reads `AuthorizationRules`.
pub fn read(rules: &Element, keys: &mut Keys<'_>) -> Result<Vec<AccessRule>, Failure> {
    let rules = rules.children.iter().filter(|child| child.is(SERVICE_BUS, "AuthorizationRule"));
    rules.map(|rule| read_rule(rule, keys)).collect()
}

fn read_rule(rule: &Element, keys: &mut Keys<'_>) -> Result<AccessRule, Failure> {
    let text = |name: &str| rule.child(SERVICE_BUS, name).map_or("", |child| child.text.trim());
    let mut key = |name: &str| match text(name) {
        "" => Key::fresh(&keys()),
        given => Key::chosen(given),
    };
    let (primary, secondary) = (key("PrimaryKey"), key("SecondaryKey"));
    let mut read = AccessRule {
        name: text("KeyName").into(),
        primary,
        secondary,
        listen: false,
        send: false,
        manage: false,
        created: LocalTime(0),
        modified: LocalTime(0),
    };
    let rights = rule.child(SERVICE_BUS, "Rights").map_or(&[][..], |rights| &rights.children);
    for right in rights {
        match right.text.trim() {
            "Listen" => read.listen = true,
            "Send" => read.send = true,
            "Manage" => read.manage = true,
            other => return Err(super::invalid("Rights", other, "one of Manage, Send, Listen")),
        }
    }
    Ok(read)
}

pub fn write(rules: &[AccessRule], writer: &mut Writer) {
    if rules.is_empty() {
        writer.empty("AuthorizationRules", &[]);
        return;
    }
    writer.start("AuthorizationRules", &[]);
    for rule in rules {
        writer
            .start("AuthorizationRule", &[("i:type", "SharedAccessAuthorizationRule")])
            .leaf("ClaimType", "SharedAccessKey")
            .leaf("ClaimValue", "None")
            .start("Rights", &[]);
        for (is_given, right) in [(rule.manage, "Manage"), (rule.send, "Send"), (rule.listen, "Listen")] {
            if is_given {
                writer.leaf("AccessRights", right);
            }
        }
        writer
            .end()
            .leaf("CreatedTime", &iso::date(rule.created.0))
            .leaf("ModifiedTime", &iso::date(rule.modified.0))
            .leaf("KeyName", &rule.name)
            .leaf("PrimaryKey", rule.primary.expose())
            .leaf("SecondaryKey", rule.secondary.expose())
            .end();
    }
    writer.end();
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::super::xml::{self, SCHEMA_INSTANCE};
    use super::*;

    pub(in super::super) fn keys() -> impl FnMut() -> String + Send {
        let mut number = 0;
        move || {
            number += 1;
            format!("made-{number}")
        }
    }

    /// A rule that lets its holder listen.
    pub(in super::super) fn reader() -> AccessRule {
        AccessRule {
            name: "reader".into(),
            primary: Key::chosen("one"),
            secondary: Key::chosen("two"),
            listen: true,
            send: false,
            manage: false,
            created: LocalTime(0),
            modified: LocalTime(0),
        }
    }

    fn read_back(text: &str) -> Vec<AccessRule> {
        let body = format!("<a xmlns=\"{SERVICE_BUS}\" xmlns:i=\"{SCHEMA_INSTANCE}\">{text}</a>");
        read(&xml::read(body.as_bytes()).unwrap().children[0], &mut keys()).unwrap()
    }

    // HX-1.8.2
    #[test]
    fn a_rule_survives_writing_and_reading() {
        let rule = reader();
        let all = AccessRule { name: "all".into(), send: true, manage: true, ..rule.clone() };
        let mut writer = Writer::default();
        write(&[rule.clone(), all.clone()], &mut writer);
        let text = writer.finish();
        assert_eq!(read_back(&text), [rule, all]);
        assert!(text.contains(
            "<AuthorizationRule i:type=\"SharedAccessAuthorizationRule\"><ClaimType>SharedAccessKey</ClaimType>\
             <ClaimValue>None</ClaimValue><Rights><AccessRights>Listen</AccessRights></Rights><CreatedTime>"
        ));
    }

    // HX-1.8.3
    #[test]
    fn keys_that_are_missing_or_empty_are_made_up() {
        let rules = read_back(
            "<AuthorizationRules><AuthorizationRule><KeyName>a</KeyName><PrimaryKey/></AuthorizationRule></AuthorizationRules>",
        );
        assert_eq!((rules[0].primary.expose(), rules[0].secondary.expose()), ("made-1", "made-2"));
        assert_eq!(rules[0].primary, Key::fresh("made-1"));
    }

    #[test]
    fn a_right_that_does_not_exist_is_refused() {
        let body = format!(
            "<a xmlns=\"{SERVICE_BUS}\"><AuthorizationRule><Rights><AccessRights>Own</AccessRights></Rights></AuthorizationRule></a>"
        );
        assert!(read(&xml::read(body.as_bytes()).unwrap(), &mut keys()).is_err());
    }
}
