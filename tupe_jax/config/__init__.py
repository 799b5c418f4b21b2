"""The configuration: its dataclasses, its checks, and how files and overrides become one."""
