//! Positions and body ids are the same numbers to the broker and to the journal, which know nothing of each other and have a
//! type for them each. Here, and nowhere else, one becomes the other.

pub(crate) trait ForJournal {
    type Id;
    fn for_journal(self) -> Self::Id;
}

pub(crate) trait ForBroker {
    type Id;
    fn for_broker(self) -> Self::Id;
}

macro_rules! shared {
    ($($id:ident),*) => {$(
        impl ForJournal for broker::$id {
            type Id = journal::$id;

            fn for_journal(self) -> journal::$id {
                journal::$id(self.0)
            }
        }

        impl ForBroker for journal::$id {
            type Id = broker::$id;

            fn for_broker(self) -> broker::$id {
                broker::$id(self.0)
            }
        }
    )*};
}

shared!(Position, BodyId);
