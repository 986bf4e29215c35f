"""Numbers from programs: `tokens` (sequences), `flat` (one vector a program), `context` (tasks and platforms), `map` (the 2-D map)."""
