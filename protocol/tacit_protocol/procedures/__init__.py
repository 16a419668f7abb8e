"""One package or module for each procedure, which ``discovery`` loads when it is asked for.

In a package ``release`` says what leaves, or what a study fixes of it (``plan``, where that is long), and
``statistic`` what is concluded. ``counts`` and ``means`` hold what several procedures share.
"""
