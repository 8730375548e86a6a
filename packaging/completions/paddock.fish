# fish completion of the client commands.
# Written by `go generate ./qsub/...` from the table of options.

function __paddock_jobs
    qstat -u '*' 2>/dev/null | awk 'NR > 2 && !seen[$1]++ {print $1}'
end

complete -c qsub -o '@' -r -F -d 'read further options from a file'
complete -c qsub -o 'A' -x -d 'account string in the accounting record'
complete -c qsub -o 'b' -x -a 'y n' -d 'the operand is a command, not a script to send'
complete -c qsub -o 'clear' -d 'forget all options so far'
complete -c qsub -o 'cwd' -d 'run the job in the current directory'
complete -c qsub -o 'C' -x -d 'prefix of options in the script; \'\' for none'
complete -c qsub -o 'e' -r -F -d 'file for standard error'
complete -c qsub -o 'help' -d 'print this help'
complete -c qsub -o 'i' -r -F -d 'file for standard input'
complete -c qsub -o 'j' -x -a 'y n' -d 'write standard error into standard output'
complete -c qsub -o 'N' -x -d 'name of the job'
complete -c qsub -o 'o' -r -F -d 'file for standard output'
complete -c qsub -o 'r' -x -a 'y n' -d 'start the job again when its run was cut short'
complete -c qsub -o 'S' -r -F -d 'shell that runs the job'
complete -c qsub -o 'shell' -x -a 'y n' -d 'start the command of -b y through a shell'
complete -c qsub -o 'sync' -x -a 'y n' -d 'wait for the end and return the exit code'
complete -c qsub -o 't' -x -d 'submit an array job with these tasks'
complete -c qsub -o 'tc' -x -d 'run at most so many tasks at once; 0 for all'
complete -c qsub -o 'terse' -d 'print the job\'s number only'
complete -c qsub -o 'v' -x -a '(set -nx)' -d 'export environment variables'
complete -c qsub -o 'V' -d 'export the whole environment'
complete -c qsub -o 'version' -d 'print the version'
complete -c qsub -o 'wd' -x -a '(__fish_complete_directories)' -d 'run the job in this directory'
complete -c qstat -f
complete -c qstat -o 'help' -d 'print this help'
complete -c qstat -o 'j' -x -a '(__paddock_jobs)' -d 'show all about jobs, by number, name or pattern'
complete -c qstat -o 's' -x -d 'pending, running, suspended, held or all jobs'
complete -c qstat -o 'u' -x -d 'jobs of these users; \'*\' for all'
complete -c qstat -o 'version' -d 'print the version'
complete -c qdel -f
complete -c qdel -o 'f' -d 'delete at once, whatever the job\'s processes do'
complete -c qdel -o 'help' -d 'print this help'
complete -c qdel -o 't' -x -d 'delete these tasks of the job before it'
complete -c qdel -o 'u' -x -d 'jobs of these users; \'*\' for all'
complete -c qdel -o 'version' -d 'print the version'
complete -c qdel -a '(__paddock_jobs)'
complete -c qacct -f
complete -c qacct -o 'f' -r -F -d 'read this accounting file'
complete -c qacct -o 'help' -d 'print this help'
complete -c qacct -o 'j' -d 'list a job by number, name or pattern, or all'
complete -c qacct -o 't' -x -d 'list these tasks of the job of -j'
complete -c qacct -o 'version' -d 'print the version'
