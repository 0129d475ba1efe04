//! An account with everything in memory: commands in, answers out. For tests, and to see how the pieces meet.

use crate::record::Record;
use crate::view::{Changes, Memory};
use crate::{Account, Budget, Command, Purge, Refusal, Reply, Time};

#[derive(Debug, Clone, Default)]
pub struct InMemory {
    pub account: Account,
    pub store: Memory,
    pub now: Time,
    /// Everything that was ever recorded.
    pub records: Vec<Record>,
}

impl InMemory {
    pub fn ask(&mut self, command: &Command) -> Result<Reply, Refusal> {
        if !command.is_write() {
            return self.account.read(command, &self.store, self.now, &mut Budget::default());
        }
        let decided = self.account.decide(command, &self.store, self.now)?;
        decided.records.into_iter().for_each(|record| self.apply(record));
        Ok(decided.reply)
    }

    pub fn apply(&mut self, record: Record) {
        let mut changes = Changes::default();
        self.account.apply(&record, &self.store, &mut changes).expect("memory can be read");
        self.store.take(changes);
        self.now = self.now.max(self.account.time());
        self.records.push(record);
    }

    /// Removes what is due, slice by slice; gives the number of slices.
    pub fn purge(&mut self, most: usize) -> usize {
        let mut slices = 0;
        loop {
            match self.account.purge(&self.store, self.now, most, &|_| None).expect("memory can be read") {
                Purge::Slice { records, .. } => records.into_iter().for_each(|record| self.apply(record)),
                Purge::Idle { .. } => return slices,
            }
            slices += 1;
        }
    }
}
