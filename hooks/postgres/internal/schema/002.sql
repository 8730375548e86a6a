-- Views for people and dashboards, which paddock_read may read. They have no ads: these may
-- have what is not for everybody.

create view queue_depth as
    select q.name as queue, q.paused, coalesce(r.ready, 0) as ready, coalesce(w.waiting, 0) as waiting, coalesce(o.held, 0) as held,
        coalesce(o.blocked, 0) as blocked, coalesce(l.running, 0) as running, r.oldest_s
    from queue q
        left join (select c.queue, sum(n) as ready, max(s) as oldest_s
            from class c cross join lateral (select count(*) as n from ready r where r.class = c.id) n
                left join lateral (select extract(epoch from clock_timestamp() - j.submitted)::bigint as s
                    from ready r join job j on j.id = r.id where r.class = c.id order by r.rank, r.id limit 1) o on true
            group by c.queue) r on r.queue = q.name
        left join (select j.queue, count(*) as waiting from waiting w join job j on j.id = w.id group by j.queue) w on w.queue = q.name
        left join (select j.queue, count(*) filter (where j.state = 'held') as held, count(*) filter (where j.state = 'blocked') as blocked
            from job j where j.state <> 'queued' group by j.queue) o on o.queue = q.name
        left join (select c.queue, count(*) as running from lease l join class c on c.id = l.class group by c.queue) l on l.queue = q.name;

create view running as
    select j.id, j.owner, j.queue, l.host, l.slot, l.accepted, l.given, l.accepted_at as started, l.until, l.cancel, j.attempts, j.evictions
    from lease l join job j on j.id = l.job;

create view recent as
    select id, owner, queue, outcome, exit_code, signal, reason, host, submitted, started, finished, cpu_s, max_memory_kb, attempts, evictions
    from done where finished > clock_timestamp() - interval '1 hour';

create view dead_letters as
    select id, owner, queue, outcome, exit_code, signal, reason, host, finished, attempts, evictions
    from done d where outcome in ('dead', 'lost') and not exists (select from job j where j.id = d.id)
        and not exists (select from done o where o.id = d.id and o.finished > d.finished);

create view failures_1h as
    select queue, host, count(*) filter (where outcome <> 'ok') as failed, count(*) as ended from recent group by queue, host;

create view throughput as
    select date_trunc('minute', finished) as minute, queue, count(*) as ended, count(*) filter (where outcome = 'ok') as ok
    from done where finished > clock_timestamp() - interval '24 hours' group by 1, 2;

create view latency as
    select queue, percentile_cont(array[0.5, 0.9, 0.99]) within group (order by extract(epoch from started - submitted)) as seconds
    from done where finished > clock_timestamp() - interval '1 hour' and started is not null group by queue;

create view hosts as
    select h.name, h.login, h.version, h.queues, h.idle, h.since, h.seen, count(l.job) as running
    from host h left join lease l on l.host = h.name group by h.name;

-- blockers are transactions that keep dead rows of the queue from being removed. What is seen of
-- others' depends on the rights of paddock_owner: grant it pg_read_all_stats.
create view blockers as
    select a.pid, a.usename, a.datname, a.state, a.xact_start, extract(epoch from clock_timestamp() - a.xact_start)::bigint as seconds, left(a.query, 60) as query
    from pg_stat_activity a where a.backend_xmin is not null and a.xact_start < clock_timestamp() - interval '1 minute';

do $$
declare
    v regclass;
begin
    for v in select c.oid from pg_class c where c.relnamespace = 'paddock'::regnamespace and c.relkind = 'v' loop
        execute format('grant select on %s to paddock_read, paddock_admin', v);
    end loop;
end $$;
