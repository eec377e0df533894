-- Rows of every table: tickets and leases in each state, server facts of each cause, notes, and a history.

INSERT INTO gpu_tickets (id, "user", server, state, attempt, place, choices, joined, "groups", options, admitted_offer, admitted_at, "end", reason, ended_at, asked, demands) VALUES
('t-1', 'bea', '', 'ended', 1, 1, '[["mig-1g.5gb",1]]', '2026-11-20 09:01:00.250000', '[]', '{"offers":["mig-1g.5gb"]}', 'mig-1g.5gb', '2026-11-20 09:02:00.250000', 'ready', '', '2026-11-20 09:03:00.250000', '2026-11-20 09:01:00.250000', NULL),
('t-2', 'cid', '', 'ended', 1, 2, '[["mig-1g.5gb",2]]', '2026-11-20 09:02:00.250000', '[]', '{"offers":["mig-1g.5gb"]}', 'mig-1g.5gb', '2026-11-20 09:03:00.250000', 'ready', '', '2026-11-20 09:04:00.250000', NULL, NULL),
('t-4', 'eve', '', 'ended', 1, 3, '[["mig-1g.5gb",3]]', '2026-11-20 09:03:00.250000', '[]', '{"offers":["mig-1g.5gb"]}', 'mig-1g.5gb', '2026-11-20 09:04:00.250000', 'failed', 'start failed: no such image', '2026-11-20 09:05:00.250000', NULL, NULL),
('t-10', 'fay', '', 'ended', 1, 4, '[["mig-1g.5gb",4]]', '2026-11-20 09:04:00.250000', '[]', '{"offers":["mig-1g.5gb"]}', NULL, NULL, 'left', 'left by the API', '2026-11-20 09:06:00.250000', NULL, NULL),
('t-11', 'gus', '', 'ended', 1, 5, '[["mig-1g.5gb",5]]', '2026-11-20 09:05:00.250000', '[]', '{"offers":["mig-1g.5gb"]}', NULL, NULL, 'abandoned', 'no spawn is pending', '2026-11-20 09:07:00.250000', NULL, NULL),
('t-12', 'hal', '', 'ended', 1, 6, '[["mig-1g.5gb",6]]', '2026-11-20 09:06:00.250000', '[]', '{"offers":["mig-1g.5gb"]}', NULL, NULL, 'max-wait', 'waited 24 h', '2026-11-20 09:08:00.250000', NULL, NULL),
('t-13', 'ida', '', 'ended', 1, 7, '[["mig-1g.5gb",7]]', '2026-11-20 09:07:00.250000', '[]', '{"offers":["mig-1g.5gb"]}', NULL, NULL, 'refused', 'not in the group', '2026-11-20 09:09:00.250000', NULL, NULL),
('t-0', 'ada', '', 'admitted', 1, 8, '[["mig-1g.5gb",8]]', '2026-11-20 09:08:00.250000', '[]', '{"offers":["mig-1g.5gb"]}', 'mig-1g.5gb', '2026-11-20 09:09:00.250000', NULL, '', NULL, NULL, NULL),
('t-14', 'joe', '', 'admitted', 1, 9, '[["cpu",9]]', '2026-11-20 09:09:00.250000', '[]', '{"offer":"cpu"}', 'cpu', '2026-11-20 09:09:00.250000', NULL, '', NULL, NULL, NULL),
('t-15', 'kim', '', 'waiting', 3, 12, '[["mig-1g.5gb",10],["mig-2g.10gb",12]]', '2026-11-20 09:10:00.250000', '["ml","students"]', '{"offers":["mig-1g.5gb","mig-2g.10gb"],"profile":"torch","n":[1,null,true]}', NULL, NULL, NULL, '', NULL, NULL, NULL),
('t-16', 'Åsa', 'näyte', 'waiting', 1, 11, '[["mig-2g.10gb",11]]', '2026-11-20 09:11:00.250000', '[]', '{"offer":"mig-2g.10gb"}', NULL, NULL, NULL, '', NULL, NULL, NULL);

INSERT INTO gpu_leases (id, ticket, "user", server, offer, device, uuid, pool, share, state, since, ready_at, ends_at, pid, pid_started, adopted) VALUES
('l-0', 't-0', 'ada', '', 'mig-1g.5gb', 'MIG-small-0|1g.5gb|7|', 'MIG-small-0', 'mig-1g.5gb', 1000, 'starting', '2026-11-20 09:09:00.250000', NULL, '2026-11-20 09:42:00.250000', NULL, NULL, FALSE),
('l-1', 't-1', 'bea', '', 'mig-1g.5gb', 'MIG-small-1|1g.5gb|8|', 'MIG-small-1', 'mig-1g.5gb', 1000, 'running', '2026-11-20 09:01:00.250000', '2026-11-20 09:02:00.250000', '2026-11-20 09:32:00.250000', 4021, 88123, FALSE),
('l-2', 't-2', 'cid', '', 'mig-1g.5gb', 'MIG-small-2|1g.5gb|9|', 'MIG-small-2', 'mig-1g.5gb', 1000, 'lost', '2026-11-20 09:02:00.250000', '2026-11-20 09:03:00.250000', '2026-11-20 09:33:00.250000', 4022, 88124, FALSE),
('l-3', '', 'dan', '', 'mig-1g.5gb', 'MIG-small-3|1g.5gb|10|', 'MIG-small-3', 'mig-1g.5gb', 1000, 'running', '2026-11-20 09:03:00.250000', '2026-11-20 09:03:00.250000', '2026-11-20 09:33:00.250000', 4023, 88125, TRUE),
('l-4', 't-4', 'eve', '', 'mig-1g.5gb', 'MIG-small-4|1g.5gb|11|', 'MIG-small-4', 'mig-1g.5gb', 1000, 'ending', '2026-11-20 09:04:00.250000', NULL, '2026-11-20 09:37:00.250000', 4024, 88126, FALSE),
('l-5', 't-5', 'lea', 'half', 'gpu-0.5@tesla-t4', 'gpu@tesla-t4', '', 'gpu@tesla-t4', 500, 'running', '2026-11-20 09:05:00.250000', '2026-11-20 09:06:00.250000', '2026-11-20 09:36:00.250000', NULL, NULL, FALSE);

INSERT INTO gpu_server_facts ("user", server, offer, started, lease, adopted, opened, opened_known, idle_since, kept_until, keeps, warned, stopping, cause, promised, drain_at, drain_why, busy_since, run_ended, unknown_since, ends_at, missed, extensions, announced, reached, unheard) VALUES
('bea', '', 'mig-1g.5gb', '2026-11-20 09:02:00.250000', 'l-1', FALSE, '2026-11-20 09:03:00.250000', TRUE, '2026-11-20 09:04:00.250000', '2026-11-20 09:20:00.250000', '["2026-11-20T09:04:00.250000+00:00","2026-11-20T09:05:00.250000+00:00"]', '2026-11-20 09:22:00.250000', NULL, 'idle', NULL, NULL, NULL, NULL, NULL, NULL, NULL, 0.0, 0, NULL, '[]', FALSE),
('cid', '', 'mig-1g.5gb', '2026-11-20 09:03:00.250000', 'l-2', FALSE, NULL, FALSE, NULL, NULL, '[]', '2026-11-20 09:23:00.250000', '2026-11-20 09:33:00.250000', 'lifetime', NULL, NULL, NULL, NULL, NULL, NULL, NULL, 0.0, 0, NULL, '[]', FALSE),
('dan', '', 'mig-1g.5gb', '2026-11-20 09:03:00.250000', 'l-3', TRUE, NULL, FALSE, NULL, NULL, '[]', NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, 0.0, 0, NULL, '[]', FALSE),
('lea', 'half', 'gpu-0.5@tesla-t4', '2026-11-20 09:06:00.250000', 'l-5', FALSE, NULL, TRUE, NULL, NULL, '[]', '2026-11-20 09:08:00.250000', NULL, 'unopened', NULL, NULL, NULL, NULL, NULL, NULL, NULL, 0.0, 0, NULL, '[]', FALSE),
('max', '', 'cpu', '2026-11-20 09:01:00.250000', NULL, FALSE, '2026-11-20 09:01:00.250000', TRUE, NULL, NULL, '[]', '2026-11-20 09:09:00.250000', NULL, 'cpu-idle', NULL, NULL, NULL, NULL, NULL, NULL, NULL, 0.0, 0, NULL, '[]', FALSE);

INSERT INTO gpu_meta (name, value) VALUES
('clock', '2026-11-20T09:12:00.250000+00:00'),
('pool-names', '{"gpu@tesla-t4": "Tesla T4"}'),
('token-name', 'a1'),
('offers', '[{"id":"mig-1g.5gb","kind":"mig","title":"MIG 1g.5gb","description":"Your own memory and cores: nobody else on the card can slow you down or crash you.","pool":"mig-1g.5gb","share":1000,"isolation":{"memory":"hardware","fault":"hardware","compute":"hardware","access":"by agreement"},"memory_bytes":5100273664,"memory_enforced":true,"sm_count":null,"sm_total":98,"product":"NVIDIA A100-PCIE-40GB","groups":["ml"],"simulated":false},{"id":"cpu","kind":"cpu","title":"CPU only","description":"No GPU: for writing, editing and small computations. It never waits for a GPU.","pool":"","share":0,"isolation":{"memory":"none","fault":"none","compute":"none","access":"none needed"},"memory_bytes":null,"memory_enforced":true,"sm_count":null,"sm_total":null,"product":"","groups":[],"simulated":false}]'),
('last-commit', 'b51505042b464930bc1bfce9dbb9f102'),
('deleted-users', '1');

INSERT INTO gpu_journal (at, kind, ticket, lease, "user", server, "text", actor, evidence, reasons, grounds) VALUES
('2026-11-20 09:01:00.250000', 'joined', 't-1', NULL, 'bea', '', 'mig-1g.5gb', '', '', NULL, NULL),
('2026-11-20 09:02:00.250000', 'admitted', 't-1', 'l-1', 'bea', '', 'mig-1g.5gb on MIG-small-1', '', '', NULL, NULL),
('2026-11-20 09:03:00.250000', 'ready', 't-1', NULL, 'bea', '', 'mig-1g.5gb', '', '', NULL, NULL),
('2026-11-20 09:03:00.250000', 'adopted', NULL, 'l-3', 'dan', '', 'a server that ran before', '', '', NULL, NULL),
('2026-11-20 09:04:00.250000', 'asked-again', 't-15', NULL, 'kim', '', 'mig-1g.5gb, mig-2g.10gb', '', '', NULL, NULL),
('2026-11-20 09:05:00.250000', 'failed', 't-4', NULL, 'eve', '', 'start failed: no such image', '', '', NULL, NULL),
('2026-11-20 09:05:00.250000', 'ending', 't-4', 'l-4', 'eve', '', 'its server is gone', '', '', NULL, NULL),
('2026-11-20 09:06:00.250000', 'left', 't-10', NULL, 'fay', '', 'left by the API', '', '', NULL, NULL),
('2026-11-20 09:07:00.250000', 'abandoned', 't-11', NULL, 'gus', '', 'no spawn is pending', '', '', NULL, NULL),
('2026-11-20 09:08:00.250000', 'max-wait', 't-12', NULL, 'hal', '', 'waited 24 h', '', '', NULL, NULL),
('2026-11-20 09:09:00.250000', 'refused', 't-13', NULL, 'ida', '', 'not in the group', '', '', NULL, NULL),
('2026-11-20 09:09:00.250000', 'lost', 't-2', 'l-2', 'cid', '', 'device MIG-small-2 is gone', '', '', NULL, NULL),
('2026-11-20 09:09:00.250000', 'running', 't-2', 'l-2', 'cid', '', 'device MIG-small-2 is back', '', '', NULL, NULL),
('2026-11-20 09:09:00.250000', 'kept', NULL, 'l-1', 'bea', '', 'kept until 2026-11-20 09:20:00', '', '', NULL, NULL),
('2026-11-20 09:09:00.250000', 'culled', NULL, 'l-2', 'cid', '', 'The time limit of 30 min ends.', '', '', NULL, NULL),
('2026-11-20 09:09:00.250000', 'ended', 't-9', 'l-9', 'ned', '', 'device MIG-small-4 is free', '', '', NULL, NULL);

INSERT INTO gpu_notices (at, "user", server, "text", reasons) VALUES
('2026-11-20 09:08:00.250000', 'hal', '', 'You waited 24 h, which is the longest.', NULL),
('2026-11-20 09:09:00.250000', 'cid', '', 'The GPU of your server is gone from the machine. Save your work and stop it.', NULL);

INSERT INTO gpu_usage (key, "user", server, offer, pool, ticket, "groups", choice, device_class, node, device, "end", source, share, devices, asked, admitted, ready, first_used, last_used, began, ended, lifetime_seconds, waited_seconds, held_seconds, ran_seconds, outage_seconds, mean_use_percent, highest_use_percent, use_measured, memory_measured, peak_memory_bytes, adopted, keeps, warnings, batch) VALUES
('l-8', 'deleted/1', '', 'gpu-0.5', 'gpu', '', '[]', '', '', '', '', 'unknown', 'own', 500, 1, NULL, '2026-11-20 07:50:00.250000', NULL, NULL, NULL, '2026-11-20 07:50:00.250000', '2026-11-20 08:00:00.250000', NULL, NULL, 600.0, NULL, NULL, NULL, NULL, NULL, NULL, NULL, FALSE, NULL, NULL, NULL),
('l-7', 'ned', 'lab', 'mig-1g.5gb', 'mig-1g.5gb', '', '[]', '', '', '', '', 'unknown', 'own', 1000, 1, NULL, '2026-11-20 08:10:00.250000', '2026-11-20 08:11:00.250000', NULL, NULL, '2026-11-20 08:10:00.250000', '2026-11-20 08:20:00.250000', NULL, NULL, 600.0, 540.0, NULL, 0.0, NULL, NULL, NULL, 0, FALSE, NULL, NULL, NULL),
('l-9', 'ned', '', 'mig-1g.5gb', 'mig-1g.5gb', 't-9', '[]', '', '', '', 'MIG-small-4', 'unknown', 'own', 1000, 1, '2026-11-20 07:30:00.250000', '2026-11-20 07:40:00.250000', '2026-11-20 07:41:00.250000', NULL, NULL, '2026-11-20 07:30:00.250000', '2026-11-20 08:50:00.250000', NULL, 600.5, 4200.0, 4140.0, NULL, 41.25, NULL, 0.0, 0.0, 4294967296, FALSE, NULL, NULL, NULL);

INSERT INTO gpu_samples (key, at, device, source, used_percent, highest_percent, memory_bytes, measured_seconds) VALUES
('device/MIG-small-1', '2026-11-20 09:09:00.250000', 'MIG-small-1', 'nvml', 3.5, 3.5, 1073741824, 10.0),
('device/MIG-small-2', '2026-11-20 09:09:00.250000', 'MIG-small-2', 'none', NULL, NULL, NULL, 0.0),
('device/MIG-small-3', '2026-11-20 09:09:00.250000', 'MIG-small-3', 'dcgm', 0.0, 0.0, 0, 10.0);

INSERT INTO gpu_open_uses (key, use) VALUES
('l-0', '{"key": "l-0", "user": "ada", "server": "", "offer": "mig-1g.5gb", "pool": "mig-1g.5gb", "share": 1000, "ticket": "t-0", "adopted": false, "device": "MIG-small-0", "choice": "", "groups": [], "end": null, "admitted": "2026-11-20T09:09:00.250000+00:00", "begun": "2026-11-20T09:09:00.250000+00:00", "keeps": 0}'),
('l-1', '{"key": "l-1", "user": "bea", "server": "", "offer": "mig-1g.5gb", "pool": "mig-1g.5gb", "share": 1000, "ticket": "t-1", "adopted": false, "device": "MIG-small-1", "choice": "", "groups": [], "end": null, "admitted": "2026-11-20T09:02:00.250000+00:00", "begun": "2026-11-20T09:01:00.250000+00:00", "keeps": 1, "asked": "2026-11-20T09:01:00.250000+00:00", "waited_seconds": 60.0, "ready": "2026-11-20T09:03:00.250000+00:00", "ready_at": "2026-11-20T09:02:00.250000+00:00"}'),
('l-2', '{"key": "l-2", "user": "cid", "server": "", "offer": "mig-1g.5gb", "pool": "mig-1g.5gb", "share": 1000, "ticket": "t-2", "adopted": false, "device": "MIG-small-2", "choice": "", "groups": [], "end": null, "admitted": "2026-11-20T09:02:00.250000+00:00", "begun": "2026-11-20T09:02:00.250000+00:00", "keeps": 0, "ready": "2026-11-20T09:03:00.250000+00:00", "ready_at": "2026-11-20T09:03:00.250000+00:00"}'),
('l-3', '{"key": "l-3", "user": "dan", "server": "", "offer": "mig-1g.5gb", "pool": "mig-1g.5gb", "share": 1000, "ticket": "", "adopted": true, "device": "MIG-small-3", "choice": "", "groups": [], "end": null, "admitted": "2026-11-20T09:03:00.250000+00:00", "begun": "2026-11-20T09:03:00.250000+00:00", "keeps": 0, "ready": "2026-11-20T09:03:00.250000+00:00", "ready_at": "2026-11-20T09:03:00.250000+00:00"}'),
('l-4', '{"key": "l-4", "user": "eve", "server": "", "offer": "mig-1g.5gb", "pool": "mig-1g.5gb", "share": 1000, "ticket": "t-4", "adopted": false, "device": "MIG-small-4", "choice": "", "groups": [], "end": "failed", "admitted": "2026-11-20T09:04:00.250000+00:00", "begun": "2026-11-20T09:04:00.250000+00:00", "keeps": 0}'),
('l-5', '{"key": "l-5", "user": "lea", "server": "half", "offer": "gpu-0.5@tesla-t4", "pool": "gpu@tesla-t4", "share": 500, "ticket": "t-5", "adopted": false, "device": "", "choice": "", "groups": [], "end": null, "admitted": "2026-11-20T09:05:00.250000+00:00", "begun": "2026-11-20T09:05:00.250000+00:00", "keeps": 0, "ready": "2026-11-20T09:06:00.250000+00:00", "ready_at": "2026-11-20T09:06:00.250000+00:00"}');

INSERT INTO gpu_imports (id, at, label, digest, rows, done) VALUES
(1, '2026-11-20 08:00:00.000000', 'sacct', '5f1d', 12, TRUE);

INSERT INTO gpu_deliveries (id, channel, kind, "user", server, offer, title, run, open_until, due, tries) VALUES
('d-1', 'mail', 'warning', 'bea', '', 'mig-1g.5gb', 'Small GPU', '2026-11-20 09:02:00.250000', NULL, '2026-11-20 09:22:10.250000', 1);

INSERT INTO gpu_forecasts (id, ticket, pool, offer, hour, at, running, ahead, played_p10, played_p50, played_p90, told_p10, told_p50, told_p90, soon, at_most, rough, "end", waited, over) VALUES
('t-15/mig-1g.5gb/0', 't-15', 'mig-1g.5gb', 'mig-1g.5gb', 0, '2026-11-20 09:10:00.250000', '2026-11-20 09:10:00.250000', 1, 60.0, 600.0, 1800.0, 50.0, 600.0, 2200.0, '[]', 1920.0, TRUE, '', NULL, NULL);
