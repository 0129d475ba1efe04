//! The codec against itself, against another implementation, and against noise.

mod arbitrary;
mod differential;
mod noise;
mod round_trip;
