pub fn run(_bytes: &[u8]) {}
