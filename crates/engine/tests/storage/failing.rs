//! Every n-th call of the disk fails, for each n until a run has no failure.

use crate::judge::judge;
use crate::owner::{Shared, TestPartition, work};
use broker::Time;
use journal::disk::{Fault, Faulty, Memory};
use std::sync::Arc;

/// Of both lives together.
const OPERATIONS: u32 = 300;

/// Two lives: the second begins where the first was stopped.
fn lives(disk: &Arc<Faulty>, told: &Shared) -> Result<(), String> {
    let mut partition = TestPartition::open(disk.clone(), told.clone(), Time(1_000_000))?;
    work(&mut partition, OPERATIONS / 2, 1, 3)?;
    partition.rest(10)?;
    partition.stop()?;
    let now = partition.now;
    drop(partition);
    let mut partition = TestPartition::open(disk.clone(), told.clone(), now)?;
    work(&mut partition, OPERATIONS / 2, 1_000, 4)?;
    partition.rest(10)
}

#[test]
fn a_failure_of_any_call_stops_the_partition_or_is_survived_and_loses_nothing() {
    // R5
    let faults = [Fault::Eio, Fault::Enospc, Fault::Torn, Fault::Short];
    for (fault, is_direct) in faults.into_iter().flat_map(|fault| [(fault, false), (fault, true)]) {
        let (mut failed, mut runs) = (0, 0);
        for call in 1.. {
            let memory = if is_direct { Memory::direct() } else { Memory::new() };
            let disk = Arc::new(Faulty::new(Arc::new(memory.clone()), fault, call));
            let told = Shared::default();
            let ended = lives(&disk, &told);
            runs += 1;
            failed += u32::from(ended.is_err());
            let context = format!("{fault:?} at call {call}, direct: {is_direct}");
            judge(&memory.crash_image(1), &told.lock(), &context);
            judge(&memory.crash_image(call + 2), &told.lock(), &context);
            if disk.calls() < call {
                assert!(ended.is_ok(), "{context}: {ended:?}");
                break;
            }
            if fault == Fault::Short {
                assert!(ended.is_ok(), "{context}: a short write is no failure: {ended:?}");
            }
        }
        println!("{fault:?}, direct: {is_direct}: {runs} runs, {failed} of them ended by the failure");
        assert!(fault == Fault::Short || fault == Fault::Enospc || failed > 5, "{fault:?}: {failed}");
    }
}
