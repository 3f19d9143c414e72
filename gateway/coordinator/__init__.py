"""The coordinator of classic consumer groups.

`group.Group` is the machine, `service.GroupService` the shell around all groups.
"""
