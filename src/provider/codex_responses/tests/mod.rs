mod any_bytes;
mod decode;
mod encode;
mod ends;
mod events;
mod round_trip;
