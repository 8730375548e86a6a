# fish completion of paddock-pg, which says itself what it has.

function __paddock_pg
    set -l before (commandline -opc)[2..]
    set -l current (commandline -ct)
    set -l command
    while set -q before[1]
        switch $before[1]
            case -d -config
                set -e before[1]
            case '-*'
            case '*'
                set command $before[1]
                break
        end
        set -e before[1]
    end
    set -l commands (paddock-pg -help 2>/dev/null | awk '/^  [a-z]/ {print $1}')
    # What is a hook and no command is not asked for help, since it waits for input.
    test -z "$command"; or contains -- $command $commands; or return
    # An option with a value has a word behind it, before the tab.
    set -l options (paddock-pg $command -help 2>/dev/null | awk -F'\t' '/^  -/ {print $1}')
    set -l previous (commandline -opc)[-1]
    if test "$command:$previous" = add:-queue
        paddock-pg queue 2>/dev/null | awk 'NR > 1 {print $1}'
    else if string match -q -- "  $previous *" $options
        return
    else if string match -q -- '-*' $current
        string replace -r -- '^  (\S+).*' '$1' $options
    else
        switch "$command"
            case ''
                printf '%s\n' $commands
            case del hold rls alter retry wait stat
                paddock-pg stat 2>/dev/null | awk 'NR > 1 {print $1}'
            case queue
                paddock-pg queue 2>/dev/null | awk 'NR > 1 {print $1}'
            case provision
                set -l dir $XDG_CONFIG_HOME
                test -n "$dir"; or set dir ~/.config
                path basename $dir/paddock/pools/*
            case add
                __fish_complete_path $current
        end
    end
end
complete -c paddock-pg -f -a '(__paddock_pg)'
