//! The tables that say how a record is laid out on disk. Each names its fields once, in their order there; writing, reading and
//! weighing are made of it. The compiler refuses a table that leaves out a field or a variant.

use super::Unreadable;
use super::field::{Field, Fields};

/// The records of an enum: the number that is on disk for ever, the variant, and its fields.
///
/// A field that is one of two kinds says so: `due: Some` is written where it is there, `; without due` is the kind for
/// where it is not. `whole` is a variant with one value that is a field by itself, `other` one whose value has a table of its
/// own, with numbers that this one does not have.
macro_rules! records {
    ($enum:ident {
        $($kind:literal $variant:ident { $($field:ident $(: $some:ident)?),* $(; without $absent:ident)? })*
        $(whole $whole_kind:literal $whole:ident)?
        $(other $other:ident($others:ident))?
    }) => {
        impl $enum {
            /// Adds the record to `out`: its kind, the length of its fields, and its fields.
            pub fn encode(&self, out: &mut Vec<u8>) {
                match self {
                    $($enum::$variant { $($field $(: $some($field))?,)* $($absent: None)? } => {
                        $crate::record::layout::framed(out, $kind, |_out| {
                            $($crate::record::field::Field::put($field, _out);)*
                        });
                    })*
                    $($enum::$whole(whole) => $crate::record::layout::framed(out, $whole_kind, |out| {
                        $crate::record::field::Field::put(whole, out);
                    }),)?
                    $($enum::$other(other) => other.encode(out),)?
                }
            }

            /// Reads the fields of a record of this kind; `None` if it is not one of these.
            pub(crate) fn read(
                kind: u8,
                fields: &mut $crate::record::field::Fields<'_>,
            ) -> Result<Option<$enum>, $crate::record::Unreadable> {
                #[allow(unused_parens)] // Those of a field that is not always there.
                let record = match kind {
                    $($kind => $enum::$variant {
                        $($field: $($some)? ($crate::record::field::Field::get(fields)?),)*
                        $($absent: None)?
                    },)*
                    $($whole_kind => $enum::$whole($crate::record::field::Field::get(fields)?),)?
                    _ => {
                        $(if let Some(other) = $others::read(kind, fields)? {
                            return Ok(Some($enum::$other(Box::new(other))));
                        })?
                        return Ok(None);
                    }
                };
                Ok(Some(record))
            }

            /// Bytes beyond those that every record is taken to have.
            pub(crate) fn more_bytes(&self) -> usize {
                match self {
                    $($enum::$variant { $($field $(: $some($field))?,)* $($absent: None)? } => {
                        0 $(+ $crate::record::field::Field::more_bytes($field))*
                    })*
                    $($enum::$whole(whole) => $crate::record::field::Field::more_bytes(whole),)?
                    $($enum::$other(other) => other.more_bytes(),)?
                }
            }
        }
    };
}

/// A struct, field by field; `as` names a module with a `put` and a `get` of its own. `flags` share a byte, the first in the
/// lowest bit.
macro_rules! structure {
    ($struct:ident { $($before:ident $(as $how:ident)?),* $(; flags $($flag:ident),* ; $($after:ident),*)? }) => {
        impl $crate::record::field::Field for $struct {
            fn put(&self, out: &mut Vec<u8>) {
                let $struct { $($before,)* $($($flag,)* $($after,)*)? } = self;
                $($crate::record::layout::structure!(@put $before out $($how)?);)*
                $(
                    let mut flags = $crate::record::layout::Flags::default();
                    $(flags.put(*$flag);)*
                    out.push(flags.bits);
                    $($crate::record::field::Field::put($after, out);)*
                )?
            }

            fn get(
                fields: &mut $crate::record::field::Fields<'_>,
            ) -> Result<$struct, $crate::record::Unreadable> {
                $(let $before = $crate::record::layout::structure!(@get fields $($how)?);)*
                $(
                    let mut flags = $crate::record::layout::Flags::get(fields)?;
                    $(let $flag = flags.take();)*
                    $(let $after = $crate::record::field::Field::get(fields)?;)*
                )?
                Ok($struct { $($before,)* $($($flag,)* $($after,)*)? })
            }
        }
    };
    (@put $field:ident $out:ident) => { $crate::record::field::Field::put($field, $out) };
    (@put $field:ident $out:ident $how:ident) => { $how::put($field, $out) };
    (@get $fields:ident) => { $crate::record::field::Field::get($fields)? };
    (@get $fields:ident $how:ident) => { $how::get($fields)? };
}

/// An enum whose variants are a byte each.
macro_rules! codes {
    ($enum:ident, $name:literal: $($code:literal $variant:ident),*) => {
        impl $crate::record::field::Field for $enum {
            fn put(&self, out: &mut Vec<u8>) {
                out.push(match self {
                    $($enum::$variant => $code,)*
                });
            }

            fn get(
                fields: &mut $crate::record::field::Fields<'_>,
            ) -> Result<$enum, $crate::record::Unreadable> {
                match <u8 as $crate::record::field::Field>::get(fields)? {
                    $($code => Ok($enum::$variant),)*
                    _ => Err($crate::record::Unreadable::BadField($name)),
                }
            }
        }
    };
}

pub(crate) use {codes, records, structure};

/// A record's frame: its kind, the length of its fields, and its fields.
pub(crate) fn framed(out: &mut Vec<u8>, kind: u8, fields: impl FnOnce(&mut Vec<u8>)) {
    out.push(kind);
    let start = out.len();
    out.extend_from_slice(&[0; 4]);
    fields(out);
    let length = (out.len() - start - 4) as u32;
    out[start..start + 4].copy_from_slice(&length.to_le_bytes());
}

/// A byte of flags on its way to the disk, or from it.
#[derive(Debug, Default)]
pub(crate) struct Flags {
    pub(crate) bits: u8,
    /// How many of the bits have their meaning.
    used: u32,
}

/// What may be among flags.
pub(crate) trait Flag {
    const BITS: u32;
    fn bits(self) -> u8;
    fn of(bits: u8) -> Self;
}

impl Flag for bool {
    const BITS: u32 = 1;

    fn bits(self) -> u8 {
        u8::from(self)
    }

    fn of(bits: u8) -> bool {
        bits & 1 != 0
    }
}

/// Whether there is an answer, and which.
impl Flag for Option<bool> {
    const BITS: u32 = 2;

    fn bits(self) -> u8 {
        u8::from(self.is_some()) | u8::from(self == Some(true)) << 1
    }

    fn of(bits: u8) -> Option<bool> {
        bool::of(bits).then(|| bool::of(bits >> 1))
    }
}

impl Flags {
    pub(crate) fn get(fields: &mut Fields<'_>) -> Result<Flags, Unreadable> {
        Ok(Flags { bits: u8::get(fields)?, used: 0 })
    }

    pub(crate) fn put<F: Flag>(&mut self, flag: F) {
        self.bits |= flag.bits() << self.used;
        self.used += F::BITS;
    }

    pub(crate) fn take<F: Flag>(&mut self) -> F {
        let flag = F::of(self.bits >> self.used);
        self.used += F::BITS;
        flag
    }
}
