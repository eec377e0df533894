"""The wait forecast: how long users in line will probably wait, as an interval such as "likely 25-50 min".

Words: a use is one server's time with a GPU, and its length is called its life. A pool is all devices of one kind,
which one line of tickets (users' places) serves. A world is one possible future of a pool: many worlds are simulated,
each with other lives drawn from past uses. A busy episode is the time from the first ticket that waits until the line
is empty.
"""
