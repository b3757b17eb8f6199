mod any_bytes;
mod decode;
mod encode;
mod ends;
mod events;
mod marks;
mod requests;
mod thinking;
