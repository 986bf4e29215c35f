"""Background work: submit, watch, pause, resume, stop, cancel; each job its own process, its own folder."""
