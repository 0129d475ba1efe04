//! The timer of one HTTP/1.1 connection, for the library that reads its heads.
//!
//! The library begins a wait for each head and drops it when the head is there. As timers of the runtime each of them would be entered
//! into a list and taken out of it again, under its lock. Here a connection has one timer of the runtime. A wait ends later than those
//! before it, so the timer may go off while a wait goes on: then it is set to the end of that one.

use hyper::rt::{Sleep, Timer};
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

/// To be made anew for each connection: its waits follow each other, and one task looks at them.
#[derive(Debug, Clone, Default)]
pub(crate) struct HeadTimer(Arc<Mutex<Option<Pin<Box<tokio::time::Sleep>>>>>);

#[derive(Debug)]
struct Wait {
    end: tokio::time::Instant,
    timer: HeadTimer,
}

impl Future for Wait {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let mut kept = self.timer.0.lock().unwrap_or_else(PoisonError::into_inner);
        let sleep = kept.get_or_insert_with(|| Box::pin(tokio::time::sleep_until(self.end)));
        if sleep.deadline() > self.end {
            sleep.as_mut().reset(self.end);
        }
        loop {
            ready!(sleep.as_mut().poll(cx));
            if sleep.deadline() == self.end {
                return Poll::Ready(());
            }
            sleep.as_mut().reset(self.end);
        }
    }
}

impl Sleep for Wait {}

impl Timer for HeadTimer {
    fn sleep(&self, duration: Duration) -> Pin<Box<dyn Sleep>> {
        self.sleep_until(self.now() + duration)
    }

    fn sleep_until(&self, deadline: Instant) -> Pin<Box<dyn Sleep>> {
        Box::pin(Wait { end: deadline.into(), timer: self.clone() })
    }

    fn now(&self) -> Instant {
        tokio::time::Instant::now().into_std()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::time::Instant;

    const LIMIT: Duration = Duration::from_secs(60);

    #[tokio::test(start_paused = true)]
    async fn each_wait_ends_in_its_own_time_whatever_became_of_those_before() {
        let timer = HeadTimer::default();
        let begin = || timer.sleep_until(timer.now() + LIMIT);
        for until_dropped in [Duration::ZERO, LIMIT / 2, LIMIT - Duration::from_millis(1)] {
            let dropped = tokio::time::timeout(until_dropped, begin()).await;
            assert!(dropped.is_err(), "{until_dropped:?}");
            let began = Instant::now();
            begin().await;
            assert_eq!(began.elapsed(), LIMIT);
        }
        let began = Instant::now();
        timer.sleep(LIMIT / 2).await;
        assert_eq!(began.elapsed(), LIMIT / 2, "one that ends sooner than the timer is set");
    }
}
