//! A short simulation of transactions among the ordinary tests.

#[test]
fn every_transaction_is_done_whole_or_not_at_all_for_twenty_seeds() {
    // S-211, S-213, S-215, S-218
    let mut sum = otobus_sim::transactions::Report::default();
    for seed in 1..=20 {
        let report = otobus_sim::transactions::run(seed, 2_000);
        assert_eq!(report.violation, None, "seed {seed}");
        sum.add(&report);
    }
    println!("{sum}");
    assert!(
        sum.commits > 500 && sum.refused_commits > 50 && sum.roll_backs > 200 && sum.crashes > 500,
        "{sum}"
    );
}
