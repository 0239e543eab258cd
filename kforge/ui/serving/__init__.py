"""The core process of the IDE: JSON lines around what the commands do. No widget is imported here."""
