//! What `accepted` survives, as a setting.

use std::str::FromStr;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Durability {
    /// Every answer waits until the disk has synced: what was accepted survives power failure.
    #[default]
    Fsync,
    /// Every answer waits until the operating system has it: what was accepted survives the end of the process.
    Os,
}

impl FromStr for Durability {
    type Err = String;

    fn from_str(text: &str) -> Result<Durability, String> {
        match text {
            "fsync" => Ok(Durability::Fsync),
            "os" => Ok(Durability::Os),
            _ => Err(format!("`{text}` is not a durability; use fsync or os")),
        }
    }
}

impl From<Durability> for journal::Durability {
    fn from(durability: Durability) -> journal::Durability {
        match durability {
            Durability::Fsync => journal::Durability::LocalSync,
            Durability::Os => journal::Durability::Os,
        }
    }
}
