//! A short simulation among the ordinary tests: a change to a decision shows at once.

use otobus_sim::plan::Plan;
use otobus_sim::run;

fn check(plan: &Plan) {
    let report = run(plan, false);
    let again = format!("cargo xtask sim --seed {} --commands {}", plan.seed, plan.commands);
    assert_eq!(report.violation, None, "{again}");
    assert!(report.commands >= plan.commands && report.crashes >= 1, "{again} did too little");
}

#[test]
fn every_promise_is_kept_for_twenty_seeds() {
    (1..=20).for_each(|seed| check(&Plan::new(seed, 2_000)));
}

#[test]
fn what_was_broken_once_stays_mended() {
    let plans = Plan::failed_once();
    assert!(!plans.is_empty());
    plans.iter().for_each(check);
}

#[test]
fn every_promise_about_items_is_kept_for_ten_seeds() {
    for seed in 1..=10 {
        let report = otobus_sim::items::run(seed, 2_000, false);
        let again = format!("cargo xtask sim --items --seed {seed}");
        assert_eq!(report.violation, None, "{again}");
        assert!(
            report.commands >= 2_000 && report.crashes >= 1 && report.expiries >= 1,
            "{again} did too little"
        );
    }
}
