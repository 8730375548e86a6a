# A queue of Paddock, see queue_conf(5). The file's name is the queue's. What
# has a # before it is the default. execd reads the file again when it is saved;
# `execd -t` only looks. Values for one host or a group: slots 2,[node7=4].
qname             all.q

# Hosts that have the queue; @allhosts is all of them. Default: this one.
#hostlist         @allhosts

# Queues with lower numbers are filled first.
#seq_no           0

# The kinds of jobs that run here, and the parallel environments and checkpointing
# interfaces that they may have.
#qtype            BATCH INTERACTIVE
pe_list           smp
#ckpt_list        NONE

# Who may use it, who may not, and who may suspend and disable it.
#user_lists       NONE
#xuser_lists      NONE
#owner_list       NONE

# How much the queue has of the attributes of complex(5), for qsub -l.
#complex_values   NONE

# Loads above which nothing is started, such as np_load_avg=1.75, and above which
# jobs are suspended: nsuspend of them every suspend_interval.
#load_thresholds  NONE
#suspend_thresholds NONE
#nsuspend         1
#suspend_interval 0:5:0

# Queues that are suspended while this one is full.
#subordinate_list NONE

# The processors that jobs may use, such as 0-3,6.
#processors       UNDEFINED

# How many tasks run at the same time. Default: the number of processors.
#slots            8

# Nice value of jobs.
#priority         0

# Whether jobs that were cut short are run again, unless qsub -r says.
#rerun            FALSE

# The directory in which each task gets a scratch directory of its own, TMPDIR.
#tmpdir           /tmp

# The shell of jobs that ask for none, and how it is given the script:
# posix_compliant, unix_behavior or script_from_stdin.
#shell            /bin/sh
#shell_start_mode posix_compliant

# A program that is started instead of the shell.
#starter_method   NONE

# Commands before and after each job: [user@]/path arguments.
#prolog           NONE
#epilog           NONE

# A signal or a command instead of STOP, CONT and KILL.
#suspend_method   NONE
#resume_method    NONE
#terminate_method NONE

# How long before STOP and KILL jobs with qsub -notify are warned.
#notify           0:1:0

# Wall clock time until USR1 and until KILL: h:m:s, or seconds.
#s_rt             INFINITY
#h_rt             INFINITY

# Soft and hard limits of each process: h:m:s, or a number with K, M or G.
#s_cpu            INFINITY
#h_cpu            INFINITY
#s_vmem           INFINITY
#h_vmem           INFINITY
#s_fsize          INFINITY
#h_fsize          INFINITY
#s_data           INFINITY
#h_data           INFINITY
#s_stack          INFINITY
#h_stack          INFINITY
#s_core           INFINITY
#h_core           INFINITY
#s_rss            INFINITY
#h_rss            INFINITY
