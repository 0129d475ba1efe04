//! What SIGHUP changes while connections go on.

use crate::server::{
    Folder, Line, Server, WELL_KNOWN_KEY, put, request, request_at, signed, signed_for, signed_for_items, tls,
};
use broker::limits::NAMESPACES;
use gateway::tls::Files;
use std::net::TcpStream;
use tokio_rustls::rustls::ALL_VERSIONS;

#[test]
fn a_new_certificate_is_shown_to_the_next_and_disturbs_nobody() {
    let (folder, other) = (Folder::new(), Folder::new());
    let mut server = Server::start(&folder, "127.0.0.1:0", None);
    let mut before = tls(server.port(), &folder.ca(), ALL_VERSIONS).unwrap();
    assert_eq!(request(&mut before, "GET", "/health", "").0, 200);

    let fresh = Files::open_or_make(&other.0, &[]).unwrap();
    assert!(tls(server.port(), &fresh.ca, ALL_VERSIONS).is_err(), "nobody knows it yet");
    let folder_of_server = folder.0.join("otobus-data/tls");
    std::fs::copy(&fresh.certificate, folder_of_server.join("server.pem")).unwrap();
    std::fs::copy(&fresh.key, folder_of_server.join("server.key")).unwrap();
    assert!(server.reload().contains("was read again"));

    assert!(tls(server.port(), &fresh.ca, ALL_VERSIONS).is_ok());
    assert!(tls(server.port(), &folder.ca(), ALL_VERSIONS).is_err(), "the old one is shown no more");
    assert_eq!(request(&mut before, "GET", "/health", "").0, 200, "who was there stays");

    folder.write("otobus-data/tls/server.key", "no key");
    folder.write("otobus.toml", "[[queue]]\nname = \"orders\"\n");
    let log = server.reload();
    assert!(log.contains("not taken: the certificate: ") && log.contains("server.key"), "{log}");
    let mut line = tls(server.port(), &fresh.ca, ALL_VERSIONS).expect("a broken one changes nothing");
    assert_eq!(request(&mut line, "GET", "/orders", &signed(WELL_KNOWN_KEY)).0, 200, "the rest is taken");
}

const POLICY: &str =
    "[[policy]]\nname = \"RootManageSharedAccessKey\"\nrights = [\"Manage\", \"Send\", \"Listen\"]\n";

#[test]
fn a_changed_key_counts_from_the_reload_on_and_what_is_no_longer_named_stays() {
    let folder = Folder::new();
    folder.write("otobus.toml", &format!("{POLICY}key = \"first\"\n[[queue]]\nname = \"orders\"\n"));
    let mut server = Server::start(&folder, "127.0.0.1:0", None);
    let mut line = TcpStream::connect(server.port()).unwrap();
    assert_eq!(request(&mut line, "GET", "/orders", &signed("first")).0, 200);
    assert_eq!(request(&mut line, "GET", "/more", &signed("first")).0, 404);
    folder.write("otobus.toml", &format!("{POLICY}key = \"second\"\n[[queue]]\nname = \"more\"\n"));
    assert!(server.reload().contains("was read again"));
    assert_eq!(request(&mut line, "GET", "/orders", &signed("first")).0, 401);
    for queue in ["/orders", "/more"] {
        assert_eq!(request(&mut line, "GET", queue, &signed("second")).0, 200, "{queue}");
    }
    folder.write("otobus.toml", "[[queue]]\nname = \"\"\n");
    let log = server.reload();
    assert!(log.contains("not taken: otobus.toml line 2: ") && log.contains("in part"), "{log}");
    assert_eq!(request(&mut line, "GET", "/orders", &signed("second")).0, 200);
}

/// What may be read with this key at these addresses of the default namespace.
fn statuses<const N: usize>(line: &mut dyn Line, key: &str, addresses: [&str; N]) -> [u16; N] {
    addresses.map(|address| request(line, "GET", address, &signed(key)).0)
}

#[test]
fn what_a_reload_cannot_take_is_named_and_keeps_nothing_else_from_being_taken() {
    let folder = Folder::new();
    let before =
        "[[queue]]\nname = \"fixed\"\n[[topic]]\nname = \"news\"\n[[topic.subscription]]\nname = \"all\"\n";
    folder.write("otobus.toml", &format!("{POLICY}key = \"first\"\n{before}"));
    let mut server = Server::start(&folder, "127.0.0.1:0", None);
    let mut line = TcpStream::connect(server.port()).unwrap();
    // Sessions cannot be asked for afterwards.
    let after = "[[queue]]\nname = \"fixed\"\nrequires_session = true\n[[queue]]\nname = \"late\"\n\
        [[topic]]\nname = \"news\"\n[[topic.subscription]]\nname = \"all\"\nrequires_session = true\n\
        [[topic.subscription.rule]]\nname = \"orphan\"\n[[topic.subscription]]\nname = \"some\"\n\
        [[topic.subscription.rule]]\nname = \"first\"\n[[topic.subscription.rule]]\nname = \"second\"\n";
    folder.write("otobus.toml", &format!("{POLICY}key = \"second\"\n{after}"));
    let log = server.reload();
    for refused in ["line 6: queue `fixed` cannot be changed", "line 13: subscription `news/all` cannot be"] {
        assert!(log.contains(&format!("not taken: otobus.toml {refused}")), "{log}");
    }
    assert!(log.contains("in part\" count=2") && !log.contains("orphan"), "{log}");
    assert_eq!(statuses(&mut line, "first", ["/fixed"]), [401]);
    let addresses = ["/fixed", "/late", "/news/subscriptions/some", "/news/subscriptions/all/rules/orphan"];
    assert_eq!(statuses(&mut line, "second", addresses), [200, 200, 200, 404]);
    let rules = ["/news/subscriptions/some/rules/first", "/news/subscriptions/some/rules/second"];
    assert_eq!(statuses(&mut line, "second", rules), [200, 200], "its subscription was taken");
}

#[test]
fn what_counts_from_the_next_start_only_is_told_in_one_line() {
    let folder = Folder::new();
    let mut server = Server::start(&folder, "127.0.0.1:0", None);
    folder.write("otobus.toml", "test_clock = true\n[tls]\nnames = [\"localhost\"]\n");
    let log = server.reload();
    assert!(log.contains("counting from the next start only: test_clock, [tls]\""), "{log}");
    // The flag wins over the file, so nothing of this would change.
    folder.write("otobus.toml", "[listen]\nbus = [\"127.0.0.1:1\"]\n[[queue]]\nname = \"q\"\n");
    let log = server.reload();
    assert!(!log.contains("next start"), "{log}");
}

/// The queue or subscription at this address as the server describes it.
fn described(server: &Server, address: &str) -> String {
    let mut line = TcpStream::connect(server.port()).unwrap();
    let (status, body) = request(&mut line, "GET", address, &signed(WELL_KNOWN_KEY));
    assert_eq!(status, 200, "{body}");
    body
}

#[test]
fn a_file_counts_at_a_start_as_at_a_reload() {
    let folder = Folder::new();
    let file = |count: u32, more: &str| {
        format!(
            "[[queue]]\nname = \"q\"\nmax_delivery_count = {count}\n{more}[[topic]]\nname = \"t\"\n\
            [[topic.subscription]]\nname = \"s\"\nmax_delivery_count = {count}\n\
            [[topic.subscription.rule]]\nname = \"r\"\nsql = \"a = {count}\"\n"
        )
    };
    let addresses = ["/q", "/t/subscriptions/s", "/t/subscriptions/s/rules/r"];
    let counts = |server: &Server, count: u32| {
        addresses.iter().all(|address| {
            let text = described(server, address);
            text.contains(&format!("<MaxDeliveryCount>{count}<")) || text.contains(&format!("a = {count}<"))
        })
    };
    folder.write("otobus.toml", &file(3, ""));
    let server = Server::start(&folder, "127.0.0.1:0", None);
    assert!(counts(&server, 3));
    let before = addresses.map(|address| described(&server, address));
    drop(server);
    let server = Server::start(&folder, "127.0.0.1:0", None);
    assert_eq!(addresses.map(|address| described(&server, address)), before, "nothing was to be changed");
    drop(server);
    folder.write("otobus.toml", &file(4, ""));
    let mut server = Server::start(&folder, "127.0.0.1:0", None);
    assert!(counts(&server, 4));
    folder.write("otobus.toml", &file(5, ""));
    server.reload();
    assert!(counts(&server, 5));
    drop(server);
    // What cannot be changed is told, and the server serves.
    folder.write("otobus.toml", &file(6, "requires_session = true\n"));
    let mut server = Server::start(&folder, "127.0.0.1:0", None);
    assert!(server.logged("not taken: ").contains("otobus.toml line 2: queue `q` cannot be changed"));
    assert!(described(&server, "/q").contains("<MaxDeliveryCount>5<"));
    assert!(described(&server, "/t/subscriptions/s").contains("<MaxDeliveryCount>6<"));
}

// H-102: a file says nothing of them.
#[test]
fn the_authorization_rules_of_what_a_reload_changes_stay() {
    let folder = Folder::new();
    let file = |text: &str| {
        format!(
            "[[queue]]\nname = \"q\"\nuser_metadata = \"{text}\"\n[[topic]]\nname = \"t\"\nuser_metadata = \"{text}\"\n"
        )
    };
    folder.write("otobus.toml", &file("first"));
    let mut server = Server::start(&folder, "127.0.0.1:0", None);
    let mut line = TcpStream::connect(server.port()).unwrap();
    for (address, kind) in [("/q", "QueueDescription"), ("/t", "TopicDescription")] {
        let rule = "<AuthorizationRule><ClaimType>SharedAccessKey</ClaimType><ClaimValue>None</ClaimValue>\
            <Rights><AccessRights>Send</AccessRights></Rights><KeyName>own</KeyName></AuthorizationRule>";
        let entry = format!(
            "<entry xmlns=\"http://www.w3.org/2005/Atom\"><content type=\"application/xml\"><{kind} \
             xmlns=\"http://schemas.microsoft.com/netservices/2010/10/servicebus/connect\"><AuthorizationRules>{rule}\
             </AuthorizationRules></{kind}></content></entry>"
        );
        let headers = format!("{}If-Match: *\r\n", signed(WELL_KNOWN_KEY));
        let (status, body) = put(&mut line, address, &headers, &entry);
        assert_eq!(status, 200, "{body}");
    }
    for text in ["second", "third"] {
        folder.write("otobus.toml", &file(text));
        server.reload();
        for address in ["/q", "/t"] {
            let found = described(&server, address);
            assert!(found.contains(&format!("<UserMetadata>{text}<")), "it is changed: {found}");
            assert!(found.contains("<KeyName>own</KeyName>"), "{address}: {found}");
        }
    }
}

#[test]
fn a_namespace_too_many_is_named_and_the_others_go_on() {
    let folder = Folder::new();
    let namespaces = |names: std::ops::Range<usize>| -> String {
        names
            .map(|name| format!("[[namespace]]\nname = \"n{name}\"\n[[namespace.queue]]\nname = \"q\"\n"))
            .collect()
    };
    let key = format!("{POLICY}key = \"key\"\n");
    folder.write("otobus.toml", &namespaces(0..1));
    let mut server = Server::start(&folder, "127.0.0.1:0", None);
    // The one called `default` is the first of those that may be.
    folder.write("otobus.toml", &format!("{key}{}", namespaces(0..NAMESPACES)));
    let log = server.reload();
    let last = NAMESPACES - 1;
    assert!(log.contains(&format!("not taken: namespace `n{last}` cannot be created")), "{log}");
    assert!(log.contains("in part\" count=1"), "{log}");
    let mut line = TcpStream::connect(server.port()).unwrap();
    assert_eq!(statuses(&mut line, "key", ["/$Resources/queues"]), [200]);
    let host = format!("n{}.localhost", last - 1);
    let signed = signed_for(&host, WELL_KNOWN_KEY);
    assert_eq!(request_at(&host, &mut line, "GET", "/q", &signed).0, 200, "the last one that may be");
}

// H-102
#[test]
fn the_host_of_a_namespace_that_is_gone_leads_nowhere_also_after_a_restart() {
    let folder = Folder::new();
    folder.write("otobus.toml", "[[queue]]\nname = \"q\"\n[[namespace]]\nname = \"shop\"\n");
    let mut server = Server::start(&folder, "127.0.0.1:0", None);
    let status = |server: &Server, host: &str, signed_host: &str| {
        let mut line = TcpStream::connect(server.port()).unwrap();
        let signed = signed_for(signed_host, WELL_KNOWN_KEY);
        request_at(host, &mut line, "GET", "/$namespaceinfo", &signed).0
    };
    assert_eq!(status(&server, "shop.localhost", "shop.localhost"), 200);
    assert_eq!(status(&server, "shop.localhost", "localhost"), 401);
    folder.write("otobus.toml", "[[queue]]\nname = \"q\"\n");
    server.reload();
    assert_eq!(status(&server, "shop.localhost", "shop.localhost"), 401);
    drop(server);
    let server = Server::start(&folder, "127.0.0.1:0", None);
    assert_eq!(status(&server, "shop.localhost", "shop.localhost"), 401);
    assert_eq!(status(&server, "localhost", "shop.localhost"), 401);
    assert_eq!(status(&server, "localhost", "localhost"), 200);
}

// P-20
#[test]
fn a_changed_key_of_the_items_counts_from_the_reload_on() {
    let folder = Folder::new();
    let keys = ["Zmlyc3Q=", "c2Vjb25k"];
    // Whatever the date of a signature, it counts.
    let file = |key: &str| format!("[items]\nclock_skew = \"P36500D\"\nprimary_key = \"{key}\"\n");
    folder.write("otobus.toml", &file(keys[0]));
    let mut server = Server::start_with_items(&folder);
    let mut line = TcpStream::connect(server.items[0]).unwrap();
    let mut statuses = || keys.map(|key| request(&mut line, "GET", "/", &signed_for_items(key)).0);
    assert_eq!(statuses(), [200, 401]);
    folder.write("otobus.toml", &file(keys[1]));
    assert!(server.reload().contains("was read again"));
    assert_eq!(statuses(), [401, 200]);
}

#[test]
fn a_file_may_declare_what_forwards_before_what_it_forwards_to() {
    let folder = Folder::new();
    let forwarding = ["forward_to", "forward_dead_lettered_messages_to"];
    let file = forwarding.map(|how| {
        format!(
            "[[queue]]\nname = \"{how}-1\"\n{how} = \"{how}-2\"\n\
            [[queue]]\nname = \"{how}-2\"\n{how} = \"{how}-3\"\n[[queue]]\nname = \"{how}-3\"\n"
        )
    });
    folder.write("otobus.toml", &file.concat());
    let server = Server::start(&folder, "127.0.0.1:0", None);
    for how in forwarding {
        assert!(described(&server, &format!("/{how}-1")).contains(&format!("{how}-2</Forward")));
        assert!(described(&server, &format!("/{how}-2")).contains(&format!("{how}-3</Forward")));
    }
}
