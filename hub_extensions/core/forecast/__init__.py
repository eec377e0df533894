"""The wait forecast: how long users in line will probably wait, as an interval such as "likely 25-50 min".

These words are used in all modules of this package. A use is one server's time with a GPU, and its length is called its
life. A pool is all devices of one kind, which one line of tickets (users' places) serves. A world is one possible
future of a pool. Many worlds are simulated, each with other lives, which are drawn at random from past uses. A busy
episode is the time from the first ticket that waits until the line is empty.
"""
