use super::*;
use crate::definition::Queue;
use broker::{QueueSettings, Span};

fn complained(text: &str) -> (usize, String) {
    let complaint = Config::parse(text).expect_err("refused");
    (text[..complaint.at.start].matches('\n').count() + 1, complaint.what)
}

#[test]
fn a_namespace_has_what_stands_in_its_own_table_and_nothing_of_another() {
    let tables = |under: &str, own: &str| {
        format!(
            "[[{under}policy]]\nname = \"{own}\"\nkey = \"k\"\nrights = [\"Send\"]\n\
             [[{under}issuer]]\nname = \"{own}\"\nkeys = \"k\"\n\
             [[{under}queue]]\nname = \"{own}-q\"\n[[{under}topic]]\nname = \"{own}-t\"\n"
        )
    };
    let text = [
        tables("", "default"),
        "[[namespace]]\nname = \"a\"\n[[namespace]]\nname = \"b\"\n".to_owned(),
        tables("namespace.", "b"),
    ];
    for (definition, own) in
        Config::parse(&text.concat()).unwrap().namespaces.iter().zip(["default", "", "b"])
    {
        let expected: Vec<_> = Some(own).filter(|own| !own.is_empty()).into_iter().collect();
        let with = |end: &str| expected.iter().map(|own| format!("{own}{end}")).collect::<Vec<_>>();
        assert_eq!(definition.policies.iter().map(|each| &*each.name).collect::<Vec<_>>(), expected);
        assert_eq!(definition.issuers.iter().map(|each| &*each.name).collect::<Vec<_>>(), expected);
        assert_eq!(definition.queues.iter().map(|each| &*each.path).collect::<Vec<_>>(), with("-q"));
        assert_eq!(definition.topics.iter().map(|each| &*each.path).collect::<Vec<_>>(), with("-t"));
    }
}

#[test]
fn a_namespace_has_its_own_tier_or_that_of_the_file() {
    // S-270
    let text =
        "tier = \"standard\"\n[[namespace]]\nname = \"a\"\n[[namespace]]\nname = \"b\"\ntier = \"Premium\"\n";
    let tiers: Vec<_> = Config::parse(text).unwrap().namespaces.iter().map(|each| each.tier).collect();
    assert_eq!(tiers, [Tier::Standard, Tier::Standard, Tier::Premium]);
    assert_eq!(Config::parse("").unwrap().namespaces[0].tier, Tier::Unlimited);
    let (line, what) = complained("\ntier = \"gold\"");
    assert_eq!((line, what.as_str()), (2, "`gold` is not a tier; use basic, standard, premium or unlimited"));
}

#[test]
fn a_whole_file_is_read() {
    let text = r#"
        data = "/var/lib/otobus"
        log = "info"
        log_format = "json"
        durability = "os"
        test_clock = true
        [listen]
        bus = ["0.0.0.0:5672", "[::1]:443"]
        [tls]
        names = ["bus.example"]
        [[policy]]
        name = "sender"
        key = "secret"
        secondary_key = "other"
        rights = ["Send"]
        [[queue]]
        name = "orders"
        lock_duration = "PT30S"
        max_delivery_count = 3
        [[queue]]
        name = "invoices"
        [memory]
        tail_cache_megabytes = 8
        connections_megabytes = 64
        state_megabytes = 512
        [items]
        cache_megabytes = 64
    "#;
    let config = Config::parse(text).expect("accepted");
    assert_eq!(config.data.as_deref(), Some(Path::new("/var/lib/otobus")));
    assert_eq!((config.log, config.log_format), (Some(LevelFilter::INFO), Some(LogFormat::Json)));
    assert_eq!(config.durability, Some(Durability::Os));
    assert_eq!(config.test_clock, Some(true));
    assert_eq!(config.listen_bus.map(|addresses| addresses.len()), Some(2));
    assert_eq!(config.tail_cache_bytes, Some(8 * 1_024 * 1_024));
    assert_eq!(config.connections_bytes, Some(64 * 1_024 * 1_024));
    assert_eq!(config.state_bytes, Some(512 * 1_024 * 1_024));
    assert_eq!(config.items_cache_bytes, Some(64 * 1_024 * 1_024));
    assert_eq!(&*config.namespaces[0].policies[0].name, "sender");
    assert!(!config.namespaces[0].policies[0].rights.include(Right::Listen));
    let Queue { path, settings, declared } = &config.namespaces[0].queues[0];
    assert_eq!(
        (&**path, settings.lock_duration, settings.max_delivery_count),
        ("orders", Span::seconds(30), 3)
    );
    assert_eq!((declared.at, declared.forward_to), (17, None));
    assert_eq!(config.namespaces[0].queues[1].settings, QueueSettings::default());
}

#[test]
fn topics_and_namespaces_are_read_with_everything_below_them() {
    let text = r#"
        [tls]
        certificate = "own.pem"
        key = "own.key"
        [[topic]]
        name = "news"
        [[topic.subscription]]
        name = "all"
        [[topic.subscription]]
        name = "some"
        max_delivery_count = 3
        [[topic.subscription.rule]]
        name = "local"
        correlation = { label = "local", properties = { size = 3, big = true } }
        [[topic.subscription.rule]]
        name = "loud"
        sql = "volume > 3"
        action = "SET volume = 3"
        [[namespace]]
        name = "shop"
        [[namespace.policy]]
        name = "seller"
        key = "k"
        rights = ["Send"]
        [[namespace.queue]]
        name = "sales"
        [[namespace.topic]]
        name = "offers"
    "#;
    let config = Config::parse(text).expect("accepted");
    assert_eq!(config.certificate, Some(("own.pem".into(), "own.key".into())));
    let [default, shop] = &config.namespaces[..] else { panic!("two namespaces") };
    let subscriptions = &default.topics[0].subscriptions;
    assert_eq!(subscriptions.iter().map(|each| each.rules.len()).collect::<Vec<_>>(), [0, 2]);
    assert_eq!(subscriptions[1].settings.max_delivery_count, 3);
    assert!(subscriptions[1].rules[1].action.is_some());
    assert_eq!((&*shop.name, shop.queues.len(), shop.topics.len()), ("shop", 1, 1));
    assert_eq!(&*shop.policies[0].name, "seller");
}

#[test]
fn items_are_read_with_their_keys_databases_and_containers() {
    let text = r#"
        [listen]
        items = []
        [items]
        account = "mine"
        endpoint = "https://db.example/"
        clock_skew = "PT1M"
        primary_key = "aGlkZGVu"
        [[database]]
        name = "shop"
        throughput = 400
        [[database.container]]
        name = "carts"
        partition_key = "/user"
        default_ttl = 60
        unique_keys = [["/a", "/b"]]
        [[database.container]]
        name = "deep"
        partition_key = ["/a", "/b"]
        indexing_policy = { indexingMode = "none" }
    "#;
    let config = Config::parse(text).expect("accepted");
    assert_eq!(config.listen_items, Some(vec![]));
    let items = config.items;
    assert_eq!(
        (items.account.as_deref(), items.clock_skew),
        (Some("mine"), Some(std::time::Duration::from_secs(60)))
    );
    assert!(items.keys.primary.is_some() && items.keys.secondary.is_none());
    let [database] = &items.databases[..] else { panic!("one database") };
    assert_eq!((database.name.as_str(), database.throughput, database.line), ("shop", Some(400), 10));
    let [carts, deep] = &database.containers[..] else { panic!("two containers") };
    let carts: serde_json::Value = serde_json::from_str(&carts.document).unwrap();
    let expected = serde_json::json!({
        "id": "carts",
        "partitionKey": { "paths": ["/user"], "kind": "Hash", "version": 2 },
        "defaultTtl": 60,
        "uniqueKeyPolicy": { "uniqueKeys": [{ "paths": ["/a", "/b"] }] },
    });
    assert_eq!(carts, expected);
    assert!(deep.document.contains("MultiHash") && deep.document.contains(r#""indexingMode":"none""#));
    assert_eq!(deep.line, 18);
}

#[test]
fn memory_is_taken_from_the_least_to_the_most_and_no_further() {
    for (table, name, least, most) in [
        ("memory", "tail_cache_megabytes", 0_i64, 65_536),
        ("memory", "connections_megabytes", 16, 65_536),
        ("memory", "state_megabytes", 16, 65_536),
        ("items", "cache_megabytes", 16, 1_048_576),
    ] {
        for (megabytes, is_taken) in [(least - 1, false), (least, true), (most, true), (most + 1, false)] {
            let read = Config::parse(&format!("[{table}]\n{name} = {megabytes}"));
            assert_eq!(read.is_ok(), is_taken, "{name} = {megabytes}");
        }
    }
}

#[test]
fn any_free_port_may_be_asked_for_more_than_once() {
    let config = Config::parse("[listen]\nbus = [\"127.0.0.1:0\", \"127.0.0.1:0\"]").expect("accepted");
    assert_eq!(config.listen_bus.map(|addresses| addresses.len()), Some(2));
}

#[test]
fn what_is_declared_is_found_by_its_line_in_every_namespace() {
    let tables = |under: &str| {
        let forwards = "forward_to = \"x\"\nforward_dead_lettered_messages_to = \"x\"\n";
        format!(
            "[[{under}queue]]\nname = \"q\"\n{forwards}[[{under}topic]]\nname = \"t\"\n\
             [[{under}topic.subscription]]\nname = \"s\"\n{forwards}"
        )
    };
    let text = [&tables(""), "[[namespace]]\nname = \"n\"\n", &tables("namespace.")].concat();
    let mut config = Config::parse(&text).expect("accepted");
    for (namespace, above) in config.namespaces.iter_mut().zip([0, 12]) {
        let places: Vec<_> = namespace
            .places()
            .map(|place| (place.at, place.forward_to, place.forward_dead_letters_to))
            .collect();
        let forwarding = |at: usize| (above + at, Some(above + at + 1), Some(above + at + 2));
        assert_eq!(places, [forwarding(2), (above + 6, None, None), forwarding(8)]);
    }
}

#[test]
fn an_empty_file_says_nothing() {
    let config = Config::parse("").expect("accepted");
    assert!(config.data.is_none() && config.listen_bus.is_none() && config.namespaces[0].queues.is_empty());
}

#[test]
fn each_mistake_is_named_with_its_line() {
    for (text, line, named) in [
        ("\ndatta = \"x\"", 2, "datta"),
        ("[listen]\nbuss = []", 2, "buss"),
        ("[[queue]]\nname = \"q\"\nlock_durtion = \"PT1M\"", 3, "lock_durtion"),
        ("[[queue]]\nlock_duration = \"PT1M\"", 1, "name"),
        ("[[queue]]\nname = \"q\"\nlock_duration = \"1 minute\"", 3, "1 minute"),
        ("[[queue]]\nname = \"q\"\n\nlock_duration = \"PT1H\"", 2, "LockDuration"),
        ("[[queue]]\nname = \"q\"\nmax_delivery_count = \"3\"", 3, "invalid type: string, expected u32"),
        ("[[queue]]\nname = \"q\"\nstatus = \"Asleep\"", 3, "Asleep"),
        ("[[queue]]\nname = \"q\"\n[[queue]]\nname = \"Q\"", 4, "twice"),
        ("[listen]\nbus = [\n\"127.0.0.1:1\",\n\"localhost:5672\"]", 4, "localhost:5672"),
        ("[listen]\nbus = [\"127.0.0.1:1\", \"127.0.0.1:1\"]", 2, "twice"),
        ("[listen]\nitems = [\"8081\"]", 2, "8081"),
        ("[items]\naccount = \"localhost\"", 2, "localhost"),
        ("[items]\nendpoint = \"db\"", 2, "items.endpoint"),
        ("[items]\nclock_skew = \"15\"", 2, "15"),
        ("[items]\n\nprimary_key = \"no base64\"", 3, "base64"),
        ("[[database]]\nname = \"d\"\n[[database]]\nname = \"d\"", 4, "twice"),
        ("[[database]]\nname = \"d\"\n[[database.container]]\nname = \"c\"", 3, "partition_key"),
        ("[[database]]\nname = \"d\"\n[[database.container]]\nname = \"c\"\npartition_key = 1", 5, "a path"),
        ("[[database]]\nname = \"d\"\n[[database.container]]\nname = \"c\"\npartition_key = []", 5, "a path"),
        ("[listen]\n\nconsole = []", 3, "listen.console"),
        ("[[policy]]\nname = \"p\"\nkey = \"k\"\nrights = [\"Read\"]", 4, "Listen, Send and Manage"),
        ("[[policy]]\nname = \"p\"\nkey = \"k\"\nrights = \"Send\"", 4, "are a list of"),
        ("[[policy]]\nname = \"p\"\nkey = 7\nrights = []", 3, "the key of a policy must be a text in quotes"),
        ("[[policy]]\nname = \"p\"\nkeyy = \"k\"\nrights = []", 3, "a policy has `name`, `key`"),
        (
            "[[policy]]\nname = \"p\"\nkey = \"k\"\nrights = []\n[[policy]]\nname = \"p\"\nkey = \"l\"\nrights = []",
            5,
            "declared already",
        ),
        ("[[policy]]\nname = \"p\"\nkey = \"\"\nrights = []", 3, "key"),
        ("[[policy]]\nname = \"p\"\nrights = []", 1, "key"),
        ("[[issuer]]\nname = \"\"\nkeys = \"k\"", 2, "`iss`"),
        ("[[issuer]]\nname = \"i\"\nkeys = \"\"", 3, "a file or a URL"),
        ("[[issuer]]\nname = \"i\"\nkeys = \"ftp://host/keys\"", 3, "https or http"),
        ("[[issuer]]\nname = \"i\"\nkeys = \"k\"\naudiences = []", 4, "no token is for this server"),
        ("[[issuer]]\nname = \"i\"\nkeys = \"k\"\nkey = \"l\"", 4, "unknown field"),
        (
            "[[issuer]]\nname = \"i\"\nkeys = \"k\"\n[[issuer]]\nname = \"i\"\nkeys = \"l\"",
            5,
            "declared already",
        ),
        (
            "[[issuer]]\nname = \"i\"\nkeys = \"k\"\n[[issuer.role]]\nname = \"r\"\nrights = [\"Read\"]",
            6,
            "Listen, Send and Manage",
        ),
        (
            "[[issuer]]\nname = \"i\"\nkeys = \"k\"\n[[issuer.role]]\nname = \"r\"\nrights = []\nentity = \"/\"",
            7,
            "has no `entity`",
        ),
        ("[[queue]]\nname = \"q\"\n[[topic]]\nname = \"Q\"", 4, "twice"),
        ("[[queue]]\n\nname = \"a b\"", 3, "`a b`"),
        ("[[queue]]\nname = \"\"", 2, "empty"),
        ("[[topic]]\n\nname = \"/t\"", 3, "`/t`"),
        ("[[topic]]\nname = \"t\"\n[[topic.subscription]]\nname = \"a/b\"", 4, "`a/b`"),
        (
            "[[topic]]\nname = \"t\"\n[[topic.subscription]]\nname = \"s\"\n[[topic.subscription.rule]]\nname = \"r#\"",
            6,
            "`r#`",
        ),
        (
            "[[topic]]\nname = \"t\"\n[[topic.subscription]]\nname = \"s\"\nrule = [{ name = \"r\" },\n{ name = \"R\" }]",
            6,
            "rule `R` is declared twice",
        ),
        (
            "[[topic]]\nname = \"t\"\nsubscription = [{ name = \"s\" },\n{ name = \"S\" }]",
            4,
            "subscription `S` is declared twice",
        ),
        ("[[namespace]]\nname = \"my_shop\"", 2, "my_shop"),
        ("\nlog_format = \"xml\"", 2, "xml"),
        (
            "[[topic]]\nname = \"t\"\n[[topic.subscription]]\nname = \"s\"\nlock_duration = \"x\"",
            5,
            "duration",
        ),
        ("[[namespace]]\nname = \"a\"\n[[namespace]]\nname = \"A\"", 4, "twice"),
        ("[[namespace]]\nname = \"Default\"", 2, "twice"),
        ("[tls]\ncertificate = \"a\"", 2, "tls.key"),
        ("[tls]\nkey = \"a\"", 2, "tls.certificate"),
        ("[memory]\ntail_cache_megabytes = 65537", 2, "65537 megabytes is above 65536"),
        ("[memory]\nconnections_megabytes = 15", 2, "15 megabytes is not between 16 and 65536"),
        ("[memory]\nstate_megabytes = 65537", 2, "65537 megabytes is not between 16 and 65536"),
        ("[items]\ncache_megabytes = 15", 2, "15 megabytes is not between 16 and 1048576"),
        ("[items]\ncache_megabytes = 1048577", 2, "1048577 megabytes is not between 16 and 1048576"),
        ("log = \"loud\"", 1, "loud"),
        ("durability = \"maybe\"", 1, "use fsync or os"),
        ("data = ", 1, ""),
        ("[[queue]\n", 1, ""),
    ] {
        let (complained_line, what) = complained(text);
        assert_eq!(complained_line, line, "{text}: {what}");
        assert!(what.contains(named), "{text}: {what}");
        assert!(!what.contains('\n'), "{what}");
    }
}

#[test]
fn no_complaint_repeats_a_key() {
    // Numbers that look like a key, since a text without quotes is read as one if it can be.
    let written = [
        "\"hush-77\" x",
        "hush-77",
        "'hush-77",
        "\"hush-77",
        "\"\"\"hush-77",
        "hush-77\"",
        "77-hush",
        "77",
        "77.77",
        "0x77hush",
        "1977-07-07",
        "+77hush",
        "hush/77+77==",
        "{ hush = 77 }",
        "[\"hush-77\"]",
        "[77]",
        "\"\\hush-77\"",
        "true77",
        "77e77",
        "77777777777777777777777",
        "hush.77",
        "\"hush\u{0}77\"",
        "",
    ];
    for value in written {
        for field in ["name", "key", "secondary_key", "rights", "kee"] {
            let others = ["name = \"p\"", "key = \"k\"", "rights = [\"Send\"]"];
            let others = others.into_iter().filter(|line| !line.starts_with(&format!("{field} ")));
            let rest = others.collect::<Vec<_>>().join("\n");
            for table in ["policy", "namespace.policy"] {
                let text = format!("[[namespace]]\nname = \"n\"\n[[{table}]]\n{rest}\n{field} = {value}\n");
                let (line, what) = complained(&text);
                assert!(!what.contains("hush") && !what.contains("77"), "{text}: {what}");
                assert!(line > 1, "{text}: {line} {what}");
            }
        }
    }
    for text in [
        "policy = \"hush\"",
        "policy = [\"hush\"]",
        "policy = [77]",
        "[items]\nprimary_key = \"hush!\"",
        "[items]\nprimary_key = [\"hush\"]",
        "[items]\nsecondary_key = 77",
        "[items]\nprimary_read_only_key = \"hush 77",
        "[[policy]]\nname = \"p\"\nkey = \"k\"\nrights = [\"hush\"]",
        "[[policy]]\nname = \"p\"\nkey = \"k\"\nhush = \"\"",
        "[[policy]]\nname = \"p\"\nkey.hush = \"k\"",
        "[[policy]]\nname = \"p\"\nkey = \"hush\"\nkey = \"hush\"",
        "[[policy]]\nhush",
    ] {
        let (_, what) = complained(text);
        assert!(!what.contains("hush") && !what.contains("77"), "{text}: {what}");
    }
    let debugged = format!("{:?}", toml::from_str::<File>("[[policy]]\nkey = \"hush\"").unwrap());
    assert!(!debugged.contains("hush"), "{debugged}");
}
