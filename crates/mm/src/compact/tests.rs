mod background;
mod deferral;
mod direct;
mod failures;
mod gate;
mod lab;
mod random;
