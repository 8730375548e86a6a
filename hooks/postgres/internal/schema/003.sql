-- Pilots: hosts that are jobs of another batch system, and pools, which have as many submitted as the
-- work that waits needs.

-- What a host that is a pilot says of itself.
alter table host add column pilot text, add column ends timestamptz;

create table pool (
    name            text primary key check (name ~ '^[A-Za-z0-9][A-Za-z0-9._-]{0,40}$'),
    login           name not null default session_user,
    last            integer not null default 0, -- pilots that were submitted at once the last time
    submit_failures integer not null default 0, -- in a row
    start_failures  integer not null default 0, -- in a row
    paused          text -- why; null: it is not
);

-- A pilot that is over is not kept.
create table pilot (
    pool      text not null references pool on delete cascade,
    id        text not null, -- with its scheduler
    submitted timestamptz not null default clock_timestamp(),
    started   timestamptz, -- when it said hello
    ends      timestamptz,
    host      text,
    primary key (pool, id)
);
create index on pilot (id);

-- piloted says what pilot a host is.
create function piloted(host text, pilot text, ends timestamptz) returns void language plpgsql as $$
#variable_conflict use_column
begin
    update host h set pilot = piloted.pilot, ends = piloted.ends where h.name = piloted.host and h.login = session_user;
    update pilot p set started = coalesce(p.started, clock_timestamp()), ends = piloted.ends, host = piloted.host
    from pool o where o.name = p.pool and o.login = session_user and p.id = piloted.pilot;
end $$;

-- own_pool returns a pool, which it makes if there is none.
create function own_pool(name text) returns pool language plpgsql as $$
#variable_conflict use_column
declare
    o pool;
begin
    insert into pool (name) values (own_pool.name) on conflict do nothing;
    select * into strict o from pool p where p.name = own_pool.name;
    if o.login <> session_user then
        raise insufficient_privilege using message = format('pool %s is %s''s', o.name, o.login);
    end if;
    return o;
end $$;

create function pool_memory(name text, out last integer, out submit_failures integer, out start_failures integer, out paused text)
    language plpgsql as $$
declare
    o pool := own_pool(pool_memory.name);
begin
    last := o.last;
    submit_failures := o.submit_failures;
    start_failures := o.start_failures;
    paused := o.paused;
end $$;

create function pool_remember(name text, last integer, submit_failures integer, start_failures integer, paused text)
    returns void language plpgsql as $$
#variable_conflict use_column
declare
    o pool := own_pool(pool_remember.name);
begin
    update pool p set last = pool_remember.last, submit_failures = pool_remember.submit_failures,
        start_failures = pool_remember.start_failures, paused = pool_remember.paused
    where p.name = o.name;
end $$;

create function pilots(pool text) returns table (id text, started boolean, ends timestamptz, used bigint) language plpgsql as $$
#variable_conflict use_column
declare
    o pool := own_pool(pilots.pool);
begin
    return query
    select p.id, p.started is not null, p.ends, coalesce(u.cpus, 0)
    from pilot p cross join lateral (select sum(c.cpus) from lease l join class c on c.id = l.class
        where l.host = p.host and l.login = session_user) u(cpus)
    where p.pool = o.name;
end $$;

create function pilot_submitted(pool text, id text) returns void language plpgsql as $$
#variable_conflict use_column
declare
    o pool := own_pool(pilot_submitted.pool);
begin
    -- It may be quicker than who has submitted it.
    insert into pilot (pool, id, started, ends, host)
    select o.name, pilot_submitted.id, h.since, h.ends, h.name
    from (select 1) one left join host h on h.pilot = pilot_submitted.id and h.login = session_user limit 1
    on conflict do nothing;
end $$;

create function pilot_over(pool text, id text) returns void language plpgsql as $$
#variable_conflict use_column
declare
    o pool := own_pool(pilot_over.pool);
begin
    delete from pilot p where p.pool = o.name and p.id = pilot_over.id;
end $$;

-- demand returns the jobs that wait, by their classes: of each at most as many as any pool has
-- processors for.
create function demand(queues text[])
    returns table (ready bigint, cpus integer, memory_mb bigint, gpus integer, seconds bigint)
    language sql stable as $$
    select n.ready, c.cpus, c.memory_mb, c.gpus, c.seconds
    from class c join queue q on q.name = c.queue
        cross join lateral (select count(*) from (select from ready r where r.class = c.id limit 100000) r) n(ready)
    where n.ready > 0 and not q.paused and (demand.queues = '{}' or c.queue = any (demand.queues))
$$;

create or replace view hosts as
    select h.name, h.login, h.version, h.queues, h.idle, h.since, h.seen, count(l.job) as running, h.pilot, h.ends
    from host h left join lease l on l.host = h.name group by h.name;

create view pools as
    select o.name, o.login, count(p.id) filter (where p.started is null) as submitted, count(p.started) as started, o.paused
    from pool o left join pilot p on p.pool = o.name group by o.name;
grant select on pools to paddock_read, paddock_admin;

do $$
declare
    f regprocedure;
begin
    for f in select p.oid from pg_proc p where p.pronamespace = 'paddock'::regnamespace
        and p.proname in ('piloted', 'own_pool', 'pool_memory', 'pool_remember', 'pilots', 'pilot_submitted', 'pilot_over', 'demand')
    loop
        execute format('revoke all on function %s from public', f);
        if f <> 'own_pool(text)'::regprocedure then
            execute format('grant execute on function %s to paddock_host', f);
            execute format('alter function %s security definer set search_path = paddock, pg_temp', f);
        end if;
    end loop;
end $$;
