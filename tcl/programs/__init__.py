"""The domain: platforms, tasks, programs, measurements; the dataset on disk; splits."""
