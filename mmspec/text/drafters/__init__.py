"""Drafters: what proposes token trees. Each is one class and one file in conf/drafter."""
