qname                 odd.q
hostlist              @odd @oddnone
seq_no                10,[@odd=11],[gehost=12]
load_thresholds       np_load_avg=1.75,mem_free=100M,mem_used=20G
suspend_thresholds    NONE,[@odd=load_avg=20]
nsuspend              2
suspend_interval      90
priority              -5
min_cpu_interval      0:10:0
processors            0-3,6
qtype                 INTERACTIVE,[gehost=BATCH]
ckpt_list             odd odd2
pe_list               odd odd2,[@oddsub=odd]
rerun                 TRUE
slots                 2,[@oddsub=4],[gehost=8]
tmpdir                /scratch
shell                 /bin/sh
prolog                root@/opt/site/prolog $job_id $job_owner $host $queue \
                      and words to make a long line of it
epilog                NONE
shell_start_mode      unix_behavior
starter_method        NONE
suspend_method        SIGTSTP
resume_method         /opt/site/resume $job_pid
terminate_method      15
notify                0:1:30
owner_list            root sgeadmin
user_lists            oddusers oddothers
xuser_lists           oddothers
subordinate_list      low.q=2
complex_values        odd_mem=8G,odd_license_with_a_very_long_name=3, \
                      odd_excl=TRUE,odd_str=x,[gehost=odd_mem=16G,odd_time=3600]
projects              NONE
xprojects             NONE
calendar              NONE
initial_state         disabled
s_rt                  0:59:30
h_rt                  3600
s_cpu                 INFINITY
h_cpu                 infinity
s_fsize               INFINITY
h_fsize               INFINITY
s_data                INFINITY
h_data                INFINITY
s_stack               INFINITY
h_stack               INFINITY
s_core                INFINITY
h_core                0
s_rss                 INFINITY
h_rss                 INFINITY
s_vmem                INFINITY
h_vmem                4G,[@odd=2.5G]
