"""The terminal IDE: it shows what the core process says and asks it to act; it holds no logic of its own."""
