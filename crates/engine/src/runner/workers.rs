//! The threads that read and write files beside a partition.

use super::jobs::{CopyJob, MessagesJob, ReadJob, ReadWork};
use crate::commit::Inbox;
use crate::snapshots::SnapshotJob;
use crate::work::Work;
use std::sync::mpsc;
use std::thread::JoinHandle;

/// Helpers of a partition. Without them it does everything by itself, which is what the simulator wants.
#[derive(Debug, Default)]
pub(crate) struct Workers {
    pub(crate) read: Option<Worker<ReadWork>>,
    pub(crate) snapshot: Option<Worker<SnapshotJob>>,
}

/// A thread that does one job after another. It has ended when this is dropped: none of its work goes on in a directory that
/// somebody else may own by then.
#[derive(Debug)]
pub(crate) struct Worker<T> {
    jobs: Option<mpsc::Sender<T>>,
    thread: Option<JoinHandle<()>>,
}

impl<T: Send + 'static> Worker<T> {
    pub(crate) fn spawn(name: &str, work: impl Fn(T) + Send + 'static) -> std::io::Result<Worker<T>> {
        let (sender, jobs) = mpsc::channel::<T>();
        let thread =
            std::thread::Builder::new().name(name.into()).spawn(move || jobs.iter().for_each(work))?;
        Ok(Worker { jobs: Some(sender), thread: Some(thread) })
    }

    fn start(&self, job: T) {
        let jobs = self.jobs.as_ref().expect("open until it is dropped");
        assert!(jobs.send(job).is_ok(), "a worker lives as long as the partition");
    }
}

impl<T> Drop for Worker<T> {
    fn drop(&mut self) {
        self.jobs = None;
        if let Some(thread) = self.thread.take() {
            // A panic there was reported where it happened.
            let _ = thread.join();
        }
    }
}

impl Workers {
    pub(crate) fn read(&self, job: ReadJob, inbox: &Inbox<Work>) {
        self.start(ReadWork::Needs(job), inbox);
    }

    pub(crate) fn read_messages(&self, job: MessagesJob, inbox: &Inbox<Work>) {
        self.start(ReadWork::Messages(job), inbox);
    }

    pub(crate) fn copy(&self, job: CopyJob, inbox: &Inbox<Work>) {
        self.start(ReadWork::Copies(job), inbox);
    }

    fn start(&self, reading: ReadWork, inbox: &Inbox<Work>) {
        match &self.read {
            Some(reader) => reader.start(reading),
            None => inbox.put(reading.run()),
        }
    }

    pub(crate) fn snapshot(&self, job: SnapshotJob, inbox: &Inbox<Work>) {
        match &self.snapshot {
            Some(writer) => writer.start(job),
            None => inbox.put(job.run()),
        }
    }
}
