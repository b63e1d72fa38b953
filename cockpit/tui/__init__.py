"""The screen: a client of the engine, and the only room that names Textual. It must never import what it draws from."""
