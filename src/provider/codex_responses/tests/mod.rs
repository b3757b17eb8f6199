mod any_bytes;
mod decode;
mod encode;
mod events;
mod round_trip;
