//! Time to live, rule by rule (C-1 to C-44).

#![allow(clippy::unwrap_used, reason = "a test")]

mod world;

use otobus_items::*;
use world::*;

/// A container with this `defaultTtl`, and in it an item with this `ttl`.
fn cell(default_ttl: Option<i64>, ttl: Option<i64>) -> World {
    let setting =
        |name: &str, value: Option<i64>| value.map(|value| format!("\"{name}\":{value}")).unwrap_or_default();
    let mut world = World::with(&setting("defaultTtl", default_ttl));
    world.create("i", &setting("ttl", ttl)).unwrap();
    world
}

/// When it is gone, to the millisecond, within a hundred years.
fn lifetime_ms(world: &mut World) -> Option<i64> {
    let started = world.inner.now.0;
    for seconds in [1000, 2000, 2147483647_i64] {
        world.inner.now = Time(started + seconds * 1000 - 1);
        assert!(world.is_there("i"), "not before its whole time has passed");
        world.pass_ms(1);
        if !world.is_there("i") {
            return Some(world.inner.now.0 - started);
        }
    }
    world.pass(2147483647);
    assert!(world.is_there("i"));
    None
}

// C-18a to C-18i, and with them C-2, C-3, C-6 to C-13
#[test]
fn the_nine_cells_of_container_and_item() {
    for (container, item, expected) in [
        (None, None, None),
        (None, Some(-1), None),
        (None, Some(2000), None),
        (Some(-1), None, None),
        (Some(-1), Some(-1), None),
        (Some(-1), Some(2000), Some(2000)),
        (Some(1000), None, Some(1000)),
        (Some(1000), Some(-1), None),
        (Some(1000), Some(2000), Some(2000)),
    ] {
        let mut world = cell(container, item);
        assert_eq!(lifetime_ms(&mut world), expected.map(|seconds| seconds * 1000), "{container:?} {item:?}");
        world.purge();
        assert_eq!(world.stored_items(), usize::from(expected.is_none()));
        world.check();
    }
}

// C-1, C-4, C-28
#[test]
fn every_write_restarts_the_countdown() {
    let mut world = cell(Some(8), None);
    let writes: [fn(&mut World); 5] = [
        |world| drop(world.upsert("i", "").unwrap()),
        |world| drop(world.replace("i", "\"n\":1").unwrap()),
        |world| drop(world.patch("i", r#"[{"op":"set","path":"/n","value":2}]"#).unwrap()),
        |world| {
            let body = World::body("i", "");
            let batch = format!(r#"[{{"operationType":"Upsert","resourceBody":{body}}}]"#);
            assert_eq!(world.batch(&batch).unwrap()[0].status, 200);
        },
        |world| drop(world.upsert("i", "").unwrap()),
    ];
    for write in writes {
        world.pass(7);
        write(&mut world);
        assert_eq!(member(&world.read("i").unwrap(), "_ts"), Some(world.inner.now.seconds().to_string()));
    }
    world.pass_ms(7_999);
    assert!(world.is_there("i"));
    world.pass_ms(1);
    assert!(!world.is_there("i"));
}

#[test]
fn reading_does_not_restart_the_countdown() {
    let mut world = cell(Some(8), None);
    for _ in 0..8 {
        assert!(world.is_there("i"));
        world.pass(1);
    }
    assert!(!world.is_there("i"));
}

// C-5, C-20, C-19, C-37
#[test]
fn a_container_takes_minus_one_or_one_to_the_maximum() {
    for right in ["-1", "1", "2147483647"] {
        let mut world = World::with(&format!("\"defaultTtl\":{right}"));
        assert_eq!(member(&world.read_container(), "defaultTtl").as_deref(), Some(right));
    }
    for wrong in ["0", "-10", "-2", "2147483648", "1.5", "\"5\"", "true", "{}", "[]"] {
        let setting = format!("\"defaultTtl\":{wrong}");
        assert_eq!(status(&World::new().create_container(&setting)), 400, "{wrong}");
        let mut world = World::with("\"defaultTtl\":5");
        assert_eq!(status(&world.replace_container(&setting)), 400, "{wrong}");
        assert_eq!(
            member(&world.read_container(), "defaultTtl").as_deref(),
            Some("5"),
            "nothing was written"
        );
    }
}

// C-5, C-21, C-22, C-38, CX-0.8
#[test]
fn an_item_takes_minus_one_or_one_to_the_maximum_and_never_null() {
    let mut world = World::with("\"defaultTtl\":-1");
    for right in ["-1", "1", "2147483647", "5.0"] {
        let made = world.upsert("i", &format!("\"ttl\":{right}")).map(document).unwrap();
        assert_eq!(member(&made, "ttl").as_deref(), Some(right));
    }
    for wrong in ["0", "-10", "-2", "2147483648", "1.5", "null", "\"5\"", "true", "{}", "[]"] {
        let members = format!("\"ttl\":{wrong}");
        let refused = world.create("j", &members);
        let Err(Refusal::BadRequest(text)) = refused else { panic!("{wrong}: {refused:?}") };
        assert_eq!(
            text,
            format!(
                "The input ttl '{wrong}' is invalid. Ensure to provide a nonzero positive integer less than or equal to '2147483647', or -1 which means never expire."
            )
        );
        assert_eq!(status(&world.upsert("i", &members)), 400);
        assert_eq!(status(&world.replace("i", &members)), 400);
        let patch = format!(r#"[{{"op":"set","path":"/ttl","value":{wrong}}}]"#);
        assert_eq!(status(&world.patch("i", &patch)), 400);
        let batch =
            format!(r#"[{{"operationType":"Create","resourceBody":{}}}]"#, World::body("j", &members));
        assert_eq!(world.batch(&batch).unwrap()[0].status, 400);
    }
    assert!(!world.is_there("j"));
    assert_eq!(member(&world.read("i").unwrap(), "ttl").as_deref(), Some("5.0"));
    world.create("k", "").unwrap();
    assert_eq!(member(&world.read("k").unwrap(), "ttl"), None, "none is ever added");
}

// C-9, C-12, C-23
#[test]
fn while_it_is_off_what_is_no_number_is_kept_and_counts_as_absent_later() {
    let mut world = World::with("");
    for (id, value) in [("a", "null"), ("b", "{\"days\":2}"), ("c", "\"soon\""), ("d", "5"), ("e", "-1")] {
        world.create(id, &format!("\"ttl\":{value}")).unwrap();
    }
    world.pass(100);
    assert_eq!(world.feed(Scope::All).len(), 5);
    world.replace_container("\"defaultTtl\":200").unwrap();
    let mut left = world.feed(Scope::All);
    left.sort();
    assert_eq!(left, ["a", "b", "c", "e"], "the own number acts at once");
    world.pass(100);
    assert_eq!(world.feed(Scope::All), ["e"]);
}

// C-21, C-23
#[test]
fn while_it_is_off_a_number_that_is_no_ttl_is_refused_all_the_same() {
    let mut world = World::with("");
    for value in ["0", "-10", "-2", "1.5", "2147483648", "1e99"] {
        let members = format!("\"ttl\":{value}");
        let refused = world.create("i", &members).unwrap_err();
        assert_eq!(refused.status().0, 400, "{value}");
        let batch =
            format!(r#"[{{"operationType":"Create","resourceBody":{}}}]"#, World::body("i", &members));
        assert_eq!(world.batch(&batch).unwrap()[0].status, 400, "{value}");
    }
    assert!(world.feed(Scope::All).is_empty());
    world.create("i", "\"ttl\":2147483647").unwrap();
}

// C-24
#[test]
fn a_null_default_is_the_same_as_none() {
    let mut world = World::with("\"defaultTtl\":null");
    assert_eq!(member(&world.read_container(), "defaultTtl"), None);
    world.create("i", "\"ttl\":1").unwrap();
    world.pass(100);
    assert!(world.is_there("i"));
    world.replace_container("\"defaultTtl\":1000").unwrap();
    world.create("j", "").unwrap();
    let replaced = world.replace_container("\"defaultTtl\":null").unwrap();
    assert_eq!(member(&replaced, "defaultTtl"), None);
    world.pass(5000);
    assert!(world.is_there("j"));
}

// C-25, C-26
#[test]
fn removing_the_default_stops_expiry_and_minus_one_does_not() {
    let mut world = World::with("\"defaultTtl\":100");
    world.create("default", "").unwrap();
    world.create("own", "\"ttl\":50").unwrap();
    world.replace_container("").unwrap();
    world.pass(1000);
    world.purge();
    assert!(world.is_there("default") && world.is_there("own"));
    // The item's own value waited, and counts from the item's last write.
    world.replace_container("\"defaultTtl\":-1").unwrap();
    assert!(world.is_there("default"));
    assert!(!world.is_there("own"));
}

// C-27
#[test]
fn a_changed_default_applies_to_items_that_are_there() {
    let mut world = World::with("");
    world.create("i", "").unwrap();
    world.pass(50);
    world.replace_container("\"defaultTtl\":100").unwrap();
    assert!(world.is_there("i"));
    world.replace_container("\"defaultTtl\":60").unwrap();
    assert!(world.is_there("i"));
    world.pass(10);
    assert!(!world.is_there("i"));
    let mut world = World::with("\"defaultTtl\":100");
    world.create("i", "").unwrap();
    world.pass(90);
    world.replace_container("\"defaultTtl\":1000").unwrap();
    world.pass(900);
    assert!(world.is_there("i"));
    world.pass(10);
    assert!(!world.is_there("i"));
}

// C-41, O-2
#[test]
fn what_had_expired_never_comes_back() {
    for later in ["", "\"defaultTtl\":-1", "\"defaultTtl\":1000000", "\"defaultTtl\":null"] {
        for is_purged in [false, true] {
            let mut world = World::with("\"defaultTtl\":100");
            world.create("default", "").unwrap();
            world.create("own", "\"ttl\":50").unwrap();
            world.create("never", "\"ttl\":-1").unwrap();
            world.pass(99);
            world.create("young", "").unwrap();
            world.create("young-own", "\"ttl\":5").unwrap();
            world.pass(1);
            world.replace_container(later).unwrap();
            if is_purged {
                world.purge();
            }
            let mut left = world.feed(Scope::All);
            left.sort();
            assert_eq!(left, ["never", "young", "young-own"], "{later} {is_purged}");
            world.replace_container("\"defaultTtl\":2147483647").unwrap();
            world.replace_container("").unwrap();
            assert!(!world.is_there("default") && !world.is_there("own"));
            world.purge();
            assert_eq!(world.stored_items(), 3, "only what had expired is removed");
            world.check();
            // What is written anew under an old id lives by the settings of today.
            world.create("default", "").unwrap();
            world.create("own", "\"ttl\":50").unwrap();
            world.pass(10_000);
            assert!(world.is_there("default") && world.is_there("own"));
        }
    }
}

// C-41: the instant of the change itself
#[test]
fn what_expires_at_the_instant_of_the_change_stays_gone_and_what_would_a_moment_later_stays() {
    let mut world = World::with("\"defaultTtl\":100");
    world.create("first", "").unwrap();
    world.pass_ms(1);
    world.create("second", "").unwrap();
    world.pass_ms(100_000 - 1);
    world.replace_container("").unwrap();
    assert_eq!(world.feed(Scope::All), ["second"]);
}

// C-29
#[test]
fn an_item_lives_its_whole_time_though_ts_is_rounded_down() {
    let mut world = World::with("\"defaultTtl\":5");
    world.pass_ms(999);
    let made = world.create("i", "").unwrap();
    assert_eq!(member(&made, "_ts"), Some((START / 1000).to_string()));
    world.pass_ms(4_999);
    assert!(world.is_there("i"));
    world.pass_ms(1);
    assert!(!world.is_there("i"));
}

// C-16, C-30, C-31, C-33, CX-0.7
#[test]
fn no_operation_finds_an_expired_item_whatever_its_conditions() {
    let mut world = World::with("\"defaultTtl\":5");
    let etag = world.create("i", "\"n\":1").unwrap().etag;
    let patch = r#"[{"op":"incr","path":"/n","value":1}]"#;
    world.pass(5);
    assert_eq!(world.read("i"), Err(Refusal::NotFound));
    assert_eq!(world.read("never"), Err(Refusal::NotFound), "the same as what never was");
    assert_eq!(world.replace("i", ""), Err(Refusal::NotFound));
    assert_eq!(world.delete("i"), Err(Refusal::NotFound));
    assert_eq!(world.patch("i", patch), Err(Refusal::NotFound));
    for if_match in [etag.clone(), "\"other\"".to_owned(), "*".to_owned()] {
        let condition = Precondition { if_match: Some(if_match), if_none_match: None };
        let delete = Command::DeleteItem { item: item("i"), condition: condition.clone() };
        assert_eq!(world.ask(delete), Err(Refusal::NotFound));
        let patch = Command::PatchItem { item: item("i"), body: patch.into(), condition: condition.clone() };
        assert_eq!(world.ask(patch), Err(Refusal::NotFound));
        let write = ItemWrite { condition, ..World::write("i", "") };
        assert_eq!(world.ask(Command::ReplaceItem { id: "i".into(), write }), Err(Refusal::NotFound));
    }
    let read = Command::ReadItem { item: item("i"), if_none_match: Some(etag), session: None };
    assert_eq!(world.ask(read), Err(Refusal::NotFound));
    for operation in ["Read", "Delete"] {
        let batch = format!(r#"[{{"operationType":"{operation}","id":"i"}}]"#);
        assert_eq!(world.batch(&batch).unwrap()[0].status, 404);
    }
    assert_eq!(world.feed(Scope::All), [""; 0]);
    assert_eq!(world.feed(Scope::Key(key("p"))), [""; 0]);
    assert_eq!(world.changes(ChangeFeedMode::LatestVersion, ChangeFeedStart::Beginning).0, [""; 0]);
    assert_eq!(world.stored_items(), 1, "though it is still stored");
}

// C-32
#[test]
fn an_expired_items_id_is_free_before_it_is_purged() {
    let mut world =
        World::with("\"defaultTtl\":5,\"uniqueKeyPolicy\":{\"uniqueKeys\":[{\"paths\":[\"/u\"]}]}");
    let first = world.create("i", "\"u\":1").unwrap();
    world.create("other", "\"u\":2").unwrap();
    world.pass(5);
    let again = world.create("i", "\"u\":2").unwrap();
    for name in ["_rid", "_etag", "_ts"] {
        assert_ne!(member(&first, name), member(&again, name), "{name}");
    }
    assert_eq!(status(&world.create("i", "\"u\":3")), 409);
    assert!(matches!(world.upsert("other", "\"u\":1"), Ok(Answer::Created(_))), "an upsert makes it, too");
    assert_eq!(status(&world.create("third", "\"u\":2")), 409, "what lives holds its unique key");
    world.check();
    assert_eq!(world.purge(), 0, "nothing expired is left");
    world.pass(5);
    world.purge();
    world.check();
    assert_eq!(world.stored_items(), 0);
}

// C-34, C-43
#[test]
fn a_purge_tells_the_feed_of_all_versions_and_only_that() {
    let mut world = World::with("\"defaultTtl\":5,\"changeFeedPolicy\":{\"retentionDuration\":10}");
    let (_, start) = world.changes(ChangeFeedMode::AllVersionsAndDeletes, ChangeFeedStart::Now);
    world.create("i", "").unwrap();
    world.pass(5);
    let after = ChangeFeedStart::After(start);
    let (events, _) = world.changes(ChangeFeedMode::AllVersionsAndDeletes, after.clone());
    assert_eq!(events.len(), 1, "not at the instant of expiry");
    let lsn = world.lsn();
    world.purge();
    assert_eq!(world.lsn(), lsn + 1);
    let (events, _) = world.changes(ChangeFeedMode::AllVersionsAndDeletes, after);
    assert_eq!(events.len(), 2);
    assert!(
        events[1].contains(r#""operationType":"delete""#)
            && events[1].contains(r#""timeToLiveExpired":true"#)
    );
    assert!(events[1].contains(r#""id":"i""#), "{}", events[1]);
    assert_eq!(world.changes(ChangeFeedMode::LatestVersion, ChangeFeedStart::Beginning).0, [""; 0]);
}

// C-34
#[test]
fn making_an_expired_item_anew_tells_its_end_and_its_beginning() {
    let mut world = World::with("\"defaultTtl\":5,\"changeFeedPolicy\":{\"retentionDuration\":10}");
    let (_, start) = world.changes(ChangeFeedMode::AllVersionsAndDeletes, ChangeFeedStart::Now);
    world.create("i", "\"n\":1").unwrap();
    world.pass(5);
    world.create("i", "\"n\":2").unwrap();
    let (events, _) = world.changes(ChangeFeedMode::AllVersionsAndDeletes, ChangeFeedStart::After(start));
    let kinds: Vec<bool> = events.iter().map(|event| event.contains(r#""timeToLiveExpired":true"#)).collect();
    assert_eq!(kinds, [false, true, false]);
    assert!(events[2].contains(r#""operationType":"create""#));
    world.check();
}

// C-35
#[test]
fn time_to_live_and_indexing_mode_none_exclude_each_other() {
    let none = r#""indexingPolicy":{"indexingMode":"none"}"#;
    assert_eq!(status(&World::new().create_container(&format!("{none},\"defaultTtl\":5"))), 400);
    let mut world = World::with("\"defaultTtl\":5");
    assert_eq!(status(&world.replace_container(&format!("{none},\"defaultTtl\":5"))), 400);
    world.replace_container(none).unwrap();
    assert_eq!(status(&world.replace_container(&format!("{none},\"defaultTtl\":-1"))), 400);
    let excluded = r#""indexingPolicy":{"includedPaths":[],"excludedPaths":[{"path":"/*"}]},"defaultTtl":5"#;
    assert!(World::new().create_container(excluded).is_ok());
}

// C-17, C-36, C-44
#[test]
fn analytical_time_to_live_is_echoed_without_effect_and_another_path_is_no_ttl() {
    let mut world =
        World::with("\"analyticalStorageTtl\":1,\"ttlPropertyPath\":\"/expires\",\"defaultTtl\":-1");
    assert_eq!(member(&world.read_container(), "analyticalStorageTtl").as_deref(), Some("1"));
    world.create("i", "\"expires\":1").unwrap();
    world.pass(100);
    assert!(world.is_there("i"));
    assert_eq!(
        member(&World::with("\"analyticalStorageTtl\":-1").read_container(), "analyticalStorageTtl")
            .as_deref(),
        Some("-1")
    );
    assert_eq!(status(&World::new().create_container("\"analyticalStorageTtl\":0")), 400);
}

// C-14, C-15, C-39
#[test]
fn a_purge_takes_slices_of_what_is_left_over() {
    let mut world = World::with("\"defaultTtl\":5");
    for number in 0..25 {
        world.create(&format!("i{number}"), "").unwrap();
    }
    world.pass(5);
    let purge = |world: &World, most: usize, units: u64| {
        world.inner.account.purge(&world.inner.store, world.inner.now, most, &|_| Some(units)).unwrap()
    };
    // Nothing is left over: it waits for the next second.
    let next = Some(world.inner.now.after_ms(1_000));
    assert_eq!(purge(&world, 10, 0), Purge::Idle { next, is_behind: true });
    for (units, expected) in [(571, 1), (571 * 3 + 570, 3), (u64::MAX, 10)] {
        let Purge::Slice { records, spent } = purge(&world, 10, units) else { panic!("a slice") };
        let Event::ItemsWritten { writes, .. } = &records[0].event else { panic!("{records:?}") };
        assert_eq!(writes.len(), expected);
        assert_eq!(spent[0].1, 571 * expected as u64);
    }
    assert_eq!(world.feed(Scope::All).len(), 0, "delayed, never visible");
    assert_eq!(world.inner.purge(10), 3);
    assert_eq!(world.stored_items(), 0);
    world.check();
}

// C-40
#[test]
fn a_purge_says_when_to_look_again() {
    let idle = |world: &World| match world
        .inner
        .account
        .purge(&world.inner.store, world.inner.now, 10, &|_| None)
        .unwrap()
    {
        Purge::Idle { next, .. } => next.map(|next| next.0 - START),
        Purge::Slice { records, .. } => panic!("{records:?}"),
    };
    let mut world = World::with("\"defaultTtl\":50");
    assert_eq!(idle(&world), None);
    world.create("i", "").unwrap();
    assert_eq!(idle(&world), Some(50_000));
    world.create("j", "\"ttl\":20").unwrap();
    world.create("k", "\"ttl\":-1").unwrap();
    assert_eq!(idle(&world), Some(20_000));
    world.replace_container("\"defaultTtl\":-1").unwrap();
    assert_eq!(idle(&world), Some(20_000));
    world.replace_container("").unwrap();
    assert_eq!(idle(&world), None);
}

// C-42
#[test]
fn time_does_not_run_backwards_for_items() {
    let mut world = World::with("\"defaultTtl\":100");
    world.create("i", "").unwrap();
    world.ask(Command::Advance { by_ms: 100_000 }).unwrap();
    assert!(!world.is_there("i"));
    // After a restart with a clock that stands before all this, the time on record counts.
    let mut again =
        InMemory { store: world.inner.store.clone(), now: Time(START - 5_000_000), ..InMemory::default() };
    again.account = Account::load(&again.store).unwrap();
    let mut world = World { inner: again };
    assert!(!world.is_there("i"));
    let made = world.create("j", "").unwrap();
    assert_eq!(member(&made, "_ts"), Some((START / 1000 + 100).to_string()));
}

// CX-1.1: the sequence of the JavaScript client's own test
#[test]
fn the_reference_timing_sequence_holds() {
    let gone_at = |default_ttl: &str, ttl: &str, seconds: i64| {
        let mut world = World::with(default_ttl);
        world.create("i", ttl).unwrap();
        world.pass(seconds);
        !world.is_there("i")
    };
    assert!(gone_at("\"defaultTtl\":5", "", 7));
    assert!(!gone_at("\"defaultTtl\":5", "\"ttl\":-1", 5));
    assert!(gone_at("\"defaultTtl\":5", "\"ttl\":2", 4));
    assert!(!gone_at("\"defaultTtl\":5", "\"ttl\":8", 6));
    assert!(gone_at("\"defaultTtl\":5", "\"ttl\":8", 10));
    assert!(gone_at("\"defaultTtl\":-1", "\"ttl\":2", 4));
    assert!(!gone_at("", "\"ttl\":5", 7));
    let mut world = World::with("\"defaultTtl\":8");
    world.create("i", "").unwrap();
    world.pass(10);
    assert!(!world.is_there("i"));
    world.create("i", "").unwrap();
    world.pass(3);
    world.upsert("i", "").unwrap();
    world.pass(7);
    assert!(world.is_there("i"));
    world.pass(3);
    assert!(!world.is_there("i"));
}
