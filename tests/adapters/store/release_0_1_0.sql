-- The rows that release 0.1.0 wrote: tickets and leases in each state, facts of each cause, notes, and a history.

INSERT INTO gpu_tickets (id, "user", server, state, attempt, place, choices, joined, "groups", options, admitted_offer, admitted_at, "end", reason, ended_at) VALUES
('t-1', 'bea', '', 'ended', 1, 1, '[["mig-1g.5gb",1]]', '2026-11-20 09:01:00.250000', '[]', '{"offers":["mig-1g.5gb"]}', 'mig-1g.5gb', '2026-11-20 09:02:00.250000', 'ready', '', '2026-11-20 09:03:00.250000'),
('t-2', 'cid', '', 'ended', 1, 2, '[["mig-1g.5gb",2]]', '2026-11-20 09:02:00.250000', '[]', '{"offers":["mig-1g.5gb"]}', 'mig-1g.5gb', '2026-11-20 09:03:00.250000', 'ready', '', '2026-11-20 09:04:00.250000'),
('t-4', 'eve', '', 'ended', 1, 3, '[["mig-1g.5gb",3]]', '2026-11-20 09:03:00.250000', '[]', '{"offers":["mig-1g.5gb"]}', 'mig-1g.5gb', '2026-11-20 09:04:00.250000', 'failed', 'start failed: no such image', '2026-11-20 09:05:00.250000'),
('t-10', 'fay', '', 'ended', 1, 4, '[["mig-1g.5gb",4]]', '2026-11-20 09:04:00.250000', '[]', '{"offers":["mig-1g.5gb"]}', NULL, NULL, 'left', 'left by the API', '2026-11-20 09:06:00.250000'),
('t-11', 'gus', '', 'ended', 1, 5, '[["mig-1g.5gb",5]]', '2026-11-20 09:05:00.250000', '[]', '{"offers":["mig-1g.5gb"]}', NULL, NULL, 'abandoned', 'no spawn is pending', '2026-11-20 09:07:00.250000'),
('t-12', 'hal', '', 'ended', 1, 6, '[["mig-1g.5gb",6]]', '2026-11-20 09:06:00.250000', '[]', '{"offers":["mig-1g.5gb"]}', NULL, NULL, 'max-wait', 'waited 24 h', '2026-11-20 09:08:00.250000'),
('t-13', 'ida', '', 'ended', 1, 7, '[["mig-1g.5gb",7]]', '2026-11-20 09:07:00.250000', '[]', '{"offers":["mig-1g.5gb"]}', NULL, NULL, 'refused', 'not in the group', '2026-11-20 09:09:00.250000'),
('t-0', 'ada', '', 'admitted', 1, 8, '[["mig-1g.5gb",8]]', '2026-11-20 09:08:00.250000', '[]', '{"offers":["mig-1g.5gb"]}', 'mig-1g.5gb', '2026-11-20 09:09:00.250000', NULL, '', NULL),
('t-14', 'joe', '', 'admitted', 1, 9, '[["cpu",9]]', '2026-11-20 09:09:00.250000', '[]', '{"offer":"cpu"}', 'cpu', '2026-11-20 09:09:00.250000', NULL, '', NULL),
('t-15', 'kim', '', 'waiting', 3, 12, '[["mig-1g.5gb",10],["mig-2g.10gb",12]]', '2026-11-20 09:10:00.250000', '["ml","students"]', '{"offers":["mig-1g.5gb","mig-2g.10gb"],"profile":"torch","n":[1,null,true]}', NULL, NULL, NULL, '', NULL),
('t-16', 'Åsa', 'näyte', 'waiting', 1, 11, '[["mig-2g.10gb",11]]', '2026-11-20 09:11:00.250000', '[]', '{"offer":"mig-2g.10gb"}', NULL, NULL, NULL, '', NULL);

INSERT INTO gpu_leases (id, ticket, "user", server, offer, device, uuid, pool, share, state, since, ready_at, ends_at, pid, pid_started, adopted) VALUES
('l-0', 't-0', 'ada', '', 'mig-1g.5gb', 'MIG-small-0|1g.5gb|7|', 'MIG-small-0', 'mig-1g.5gb', 1000, 'starting', '2026-11-20 09:09:00.250000', NULL, '2026-11-20 09:42:00.250000', NULL, NULL, FALSE),
('l-1', 't-1', 'bea', '', 'mig-1g.5gb', 'MIG-small-1|1g.5gb|8|', 'MIG-small-1', 'mig-1g.5gb', 1000, 'running', '2026-11-20 09:01:00.250000', '2026-11-20 09:02:00.250000', '2026-11-20 09:32:00.250000', 4021, 88123, FALSE),
('l-2', 't-2', 'cid', '', 'mig-1g.5gb', 'MIG-small-2|1g.5gb|9|', 'MIG-small-2', 'mig-1g.5gb', 1000, 'lost', '2026-11-20 09:02:00.250000', '2026-11-20 09:03:00.250000', '2026-11-20 09:33:00.250000', 4022, 88124, FALSE),
('l-3', '', 'dan', '', 'mig-1g.5gb', 'MIG-small-3|1g.5gb|10|', 'MIG-small-3', 'mig-1g.5gb', 1000, 'running', '2026-11-20 09:03:00.250000', '2026-11-20 09:03:00.250000', '2026-11-20 09:33:00.250000', 4023, 88125, TRUE),
('l-4', 't-4', 'eve', '', 'mig-1g.5gb', 'MIG-small-4|1g.5gb|11|', 'MIG-small-4', 'mig-1g.5gb', 1000, 'ending', '2026-11-20 09:04:00.250000', NULL, '2026-11-20 09:37:00.250000', 4024, 88126, FALSE),
('l-5', 't-5', 'lea', 'half', 'gpu-0.5@tesla-t4', 'gpu@tesla-t4', '', 'gpu@tesla-t4', 500, 'running', '2026-11-20 09:05:00.250000', '2026-11-20 09:06:00.250000', '2026-11-20 09:36:00.250000', NULL, NULL, FALSE);

INSERT INTO gpu_server_facts ("user", server, offer, started, lease, adopted, opened, opened_known, idle_since, kept_until, keeps, warned, stopping, cause) VALUES
('bea', '', 'mig-1g.5gb', '2026-11-20 09:02:00.250000', 'l-1', FALSE, '2026-11-20 09:03:00.250000', TRUE, '2026-11-20 09:04:00.250000', '2026-11-20 09:20:00.250000', '["2026-11-20T09:04:00.250000+00:00","2026-11-20T09:05:00.250000+00:00"]', '2026-11-20 09:22:00.250000', NULL, 'idle'),
('cid', '', 'mig-1g.5gb', '2026-11-20 09:03:00.250000', 'l-2', FALSE, NULL, FALSE, NULL, NULL, '[]', '2026-11-20 09:23:00.250000', '2026-11-20 09:33:00.250000', 'lifetime'),
('dan', '', 'mig-1g.5gb', '2026-11-20 09:03:00.250000', 'l-3', TRUE, NULL, FALSE, NULL, NULL, '[]', NULL, NULL, NULL),
('lea', 'half', 'gpu-0.5@tesla-t4', '2026-11-20 09:06:00.250000', 'l-5', FALSE, NULL, TRUE, NULL, NULL, '[]', '2026-11-20 09:08:00.250000', NULL, 'unopened'),
('max', '', 'cpu', '2026-11-20 09:01:00.250000', NULL, FALSE, '2026-11-20 09:01:00.250000', TRUE, NULL, NULL, '[]', '2026-11-20 09:09:00.250000', NULL, 'cpu-idle');

INSERT INTO gpu_meta (name, value) VALUES
('clock', '2026-11-20T09:12:00.250000+00:00'),
('pool-names', '{"gpu@tesla-t4": "Tesla T4"}'),
('token-name', 'a1'),
('offers', '[{"id":"mig-1g.5gb","kind":"mig","title":"MIG 1g.5gb","description":"Your own memory and cores: nobody else on the card can slow you down or crash you.","pool":"mig-1g.5gb","share":1000,"isolation":{"memory":"hardware","fault":"hardware","compute":"hardware","access":"by agreement"},"memory_bytes":5100273664,"memory_enforced":true,"sm_count":null,"sm_total":98,"product":"NVIDIA A100-PCIE-40GB","groups":["ml"],"simulated":false},{"id":"cpu","kind":"cpu","title":"CPU only","description":"No GPU: for writing, editing and small computations. It never waits for a GPU.","pool":"","share":0,"isolation":{"memory":"none","fault":"none","compute":"none","access":"none needed"},"memory_bytes":null,"memory_enforced":true,"sm_count":null,"sm_total":null,"product":"","groups":[],"simulated":false}]'),
('last-commit', 'b51505042b464930bc1bfce9dbb9f102');

INSERT INTO gpu_journal (at, kind, ticket, lease, "user", server, "text") VALUES
('2026-11-20 09:01:00.250000', 'joined', 't-1', NULL, 'bea', '', 'mig-1g.5gb'),
('2026-11-20 09:02:00.250000', 'admitted', 't-1', 'l-1', 'bea', '', 'mig-1g.5gb on MIG-small-1'),
('2026-11-20 09:03:00.250000', 'ready', 't-1', NULL, 'bea', '', 'mig-1g.5gb'),
('2026-11-20 09:03:00.250000', 'adopted', NULL, 'l-3', 'dan', '', 'a server that ran before'),
('2026-11-20 09:04:00.250000', 'asked-again', 't-15', NULL, 'kim', '', 'mig-1g.5gb, mig-2g.10gb'),
('2026-11-20 09:05:00.250000', 'failed', 't-4', NULL, 'eve', '', 'start failed: no such image'),
('2026-11-20 09:05:00.250000', 'ending', 't-4', 'l-4', 'eve', '', 'its server is gone'),
('2026-11-20 09:06:00.250000', 'left', 't-10', NULL, 'fay', '', 'left by the API'),
('2026-11-20 09:07:00.250000', 'abandoned', 't-11', NULL, 'gus', '', 'no spawn is pending'),
('2026-11-20 09:08:00.250000', 'max-wait', 't-12', NULL, 'hal', '', 'waited 24 h'),
('2026-11-20 09:09:00.250000', 'refused', 't-13', NULL, 'ida', '', 'not in the group'),
('2026-11-20 09:09:00.250000', 'lost', 't-2', 'l-2', 'cid', '', 'device MIG-small-2 is gone'),
('2026-11-20 09:09:00.250000', 'running', 't-2', 'l-2', 'cid', '', 'device MIG-small-2 is back'),
('2026-11-20 09:09:00.250000', 'kept', NULL, 'l-1', 'bea', '', 'kept until 2026-11-20 09:20:00'),
('2026-11-20 09:09:00.250000', 'culled', NULL, 'l-2', 'cid', '', 'The time limit of 30 min ends.'),
('2026-11-20 09:09:00.250000', 'ended', 't-9', 'l-9', 'ned', '', 'device MIG-small-4 is free');

INSERT INTO gpu_notices (at, "user", server, "text") VALUES
('2026-11-20 09:08:00.250000', 'hal', '', 'You waited 24 h, which is the longest.'),
('2026-11-20 09:09:00.250000', 'cid', '', 'The GPU of your server is gone from the machine. Save your work and stop it.');

INSERT INTO gpu_usage (lease, "user", server, offer, pool, share, joined, admitted, ready, ended, "end", waited_seconds, peak_memory_bytes, mean_use_percent) VALUES
('l-9', 'ned', '', 'mig-1g.5gb', 'mig-1g.5gb', 1000, '2026-11-20 07:30:00.250000', '2026-11-20 07:40:00.250000', '2026-11-20 07:41:00.250000', '2026-11-20 08:50:00.250000', 'released', 600.5, 4294967296, 41.25),
('l-8', '', '', 'gpu-0.5', 'gpu', 500, NULL, '2026-11-20 07:50:00.250000', NULL, '2026-11-20 08:00:00.250000', 'released', NULL, NULL, NULL),
('l-7', 'ned', 'lab', 'mig-1g.5gb', 'mig-1g.5gb', 1000, NULL, '2026-11-20 08:10:00.250000', '2026-11-20 08:11:00.250000', '2026-11-20 08:20:00.250000', 'released', NULL, 0, 0.0);

INSERT INTO gpu_samples (uuid, at, used_percent, memory_used_bytes, pids, source) VALUES
('MIG-small-1', '2026-11-20 09:09:00.250000', 3.5, 1073741824, '[4021,4100]', 'nvml'),
('MIG-small-2', '2026-11-20 09:09:00.250000', NULL, NULL, NULL, 'none'),
('MIG-small-3', '2026-11-20 09:09:00.250000', 0.0, 0, '[]', 'dcgm');
