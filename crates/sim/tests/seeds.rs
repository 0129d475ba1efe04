//! A short simulation among the ordinary tests: whoever changes a decision hears of it at once.

use otobus_sim::plan::Plan;
use otobus_sim::run;

#[test]
fn every_promise_is_kept_for_twenty_seeds() {
    for seed in 1..=20 {
        let report = run(&Plan::new(seed, 2_000), false);
        assert_eq!(report.violation, None, "cargo xtask sim --seed {seed}");
        assert!(report.commands >= 2_000 && report.crashes >= 1, "seed {seed} did too little");
    }
}
