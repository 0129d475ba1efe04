//! Reading everything again, slowly: a disk that has forgotten something should be found out before somebody needs it.
//! Damage is logged and shown in the health of the server; nothing is changed, and what is whole is served.

use crate::condition::Condition;
use crate::inbox::{Inbox, Item};
use crate::limits::{SCRUB_BYTES_PER_SECOND, SCRUB_EVERY, SCRUB_PAUSE};
use journal::{Position, Scrub};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::sync::{Arc, Weak};
use std::time::Duration;

/// Starts the thread that scrubs. It ends when the partition is gone or the returned end of the channel is dropped.
pub(crate) fn spawn(inbox: &Arc<Inbox>, condition: Arc<Condition>) -> std::io::Result<mpsc::Sender<()>> {
    let (stop, stopped) = mpsc::channel();
    let inbox = Arc::downgrade(inbox);
    std::thread::Builder::new()
        .name("otobus-scrub".into())
        .spawn(move || while scrub_all(&inbox, &condition, &stopped).is_some() {})?;
    Ok(stop)
}

/// One pass over everything; `None` when told to stop.
fn scrub_all(inbox: &Weak<Inbox>, condition: &Condition, stopped: &Receiver<()>) -> Option<()> {
    let mut after = Position(0);
    loop {
        rest(stopped, SCRUB_PAUSE)?;
        let (reply, answer) = mpsc::channel();
        inbox.upgrade()?.put(Item::Scrub { after, reply });
        match answer.recv().ok()? {
            Some(scrub) => {
                after = scrub.first();
                scrub_one(&scrub, condition, stopped)?;
            }
            None => return rest(stopped, SCRUB_EVERY),
        }
    }
}

fn scrub_one(scrub: &Scrub, condition: &Condition, stopped: &Receiver<()>) -> Option<()> {
    let (mut unpaid, mut is_stopped) = (0, false);
    let mut pause = |bytes: u64| {
        unpaid += bytes;
        if unpaid >= SCRUB_BYTES_PER_SECOND / 8 && !is_stopped {
            let owed = Duration::from_millis(unpaid * 1_000 / SCRUB_BYTES_PER_SECOND);
            is_stopped = rest(stopped, owed).is_none();
            unpaid = 0;
        }
    };
    let checked = scrub.run(&mut pause, &mut |damage| condition.report_damage(&damage.to_string()));
    if let Err(error) = checked {
        condition.report_damage(&error.to_string());
    }
    (!is_stopped).then_some(())
}

/// Waits; `None` when told to stop meanwhile.
fn rest(stopped: &Receiver<()>, time: Duration) -> Option<()> {
    matches!(stopped.recv_timeout(time), Err(RecvTimeoutError::Timeout)).then_some(())
}
