//! Any bytes, taken as a message, as a batch and as an overlay.
//!
//! Nothing panics. What intake accepts can be stored, delivered and looked at, and comes back with an id, the sender's
//! bare message and well-formed sections. An overlay that reads is written back as the same bytes.

use otobus_message::{Facts, Overlay, Sections, Stamp, SystemProperty, View, append_stored, batch, delivery};

pub fn run(bytes: &[u8]) {
    batch::messages(bytes).flatten().for_each(one);
    one(bytes);
    overlay(bytes);
}

fn one(sent: &[u8]) {
    let Ok(sections) = Sections::scan(sent) else { return };
    let Ok(facts) = Facts::read(sent, &sections) else { return };

    let mut stored = Vec::new();
    append_stored(&mut stored, sent, &sections, || [b'0'; 32]);
    let sections = Sections::scan(&stored).expect("what was accepted scans again once stored");
    let found = View { stored: &stored, sections: &sections, overlay: None };
    assert!(found.system(SystemProperty::MessageId).expect("stored properties read").is_some());
    assert_eq!(found.time_to_live(), Ok(facts.ttl));

    deliver(&stored, &sections, &Stamp::default(), None);
    let stamp = Stamp {
        ttl: Some(1),
        expires: Some(1),
        locked_until: Some(0),
        enqueued_sequence: Some(0),
        lock_token: Some([0; 16]),
        ..Stamp::default()
    };
    let mut overlay = Overlay::default();
    overlay.set_dead_letter(Some("reason"), None).expect("it is short");
    overlay.set_dead_letter_source("source").expect("it is short");
    deliver(&stored, &sections, &stamp, Some(&overlay));
}

fn deliver(stored: &[u8], sections: &Sections, stamp: &Stamp<'_>, overlay: Option<&Overlay>) {
    let mut out = Vec::new();
    delivery::encode(&mut out, stored, sections, stamp, overlay).expect("what was accepted can be delivered");
    let delivered = Sections::scan(&out).expect("a delivered message scans");
    assert!(delivered.is_plain && delivered.header.is_present());
    assert_eq!((delivered.body_kind, delivered.body_sections), (sections.body_kind, sections.body_sections));
    if sections.is_plain {
        assert_eq!(delivered.body.bytes(&out), sections.body.bytes(stored));
        assert_eq!(delivered.footer.bytes(&out), sections.footer.bytes(stored));
    }
    if sections.is_plain && stamp.ttl.is_none() && overlay.is_none() {
        assert_eq!(out[delivered.bare as usize..], stored[sections.bare as usize..]);
    }
    let before = View { stored, sections, overlay };
    let after = View { stored: &out, sections: &delivered, overlay: None };
    for property in before.applications().expect("they were checked") {
        let (name, value) = property.expect("they were checked");
        value.value().expect("they were checked all the way down");
        assert_eq!(before.application(name), after.application(name), "{name}");
    }
    for property in SystemProperty::ALL.into_iter().filter(|p| *p != SystemProperty::DeadLetterSource) {
        assert_eq!(before.system(property), after.system(property), "{property:?}");
    }
}

fn overlay(bytes: &[u8]) {
    let Ok(overlay) = Overlay::decode(bytes) else { return };
    let mut written = Vec::new();
    overlay.encode(&mut written);
    assert_eq!(written, bytes);
    let mut merged = Overlay::default();
    merged.merge(&overlay).expect("it is within its limit");
    assert_eq!(merged, overlay);
}
