# bash completion of paddock-pg, which says itself what it has.

_paddock_pg() {
  local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]} command= words= i
  COMPREPLY=()
  for ((i = 1; i < COMP_CWORD; i++)); do
    case ${COMP_WORDS[i]} in
    -d | -config) i=$((i + 1)) ;;
    -*) ;;
    *) command=${COMP_WORDS[i]}; break ;;
    esac
  done
  local commands=$(paddock-pg -help 2>/dev/null | awk '/^  [a-z]/ {print $1}')
  # What is a hook and no command is not asked for help, since it waits for input.
  [[ -z $command || $'\n'$commands$'\n' == *$'\n'$command$'\n'* ]] || return
  # An option with a value has a word behind it, before the tab.
  local options=$(paddock-pg $command -help 2>/dev/null | awk -F'\t' '/^  -/ {print $1}')
  if [[ $command:$prev == add:-queue ]]; then
    words=$(paddock-pg queue 2>/dev/null | awk 'NR > 1 {print $1}')
  elif [[ $prev == -* && $'\n'$options == *$'\n'"  $prev "* ]]; then
    return
  elif [[ $cur == -* ]]; then
    words=$(awk '{print $1}' <<<"$options")
  else
    case $command in
    '') words=$commands ;;
    del | hold | rls | alter | retry | wait | stat) words=$(paddock-pg stat 2>/dev/null | awk 'NR > 1 {print $1}') ;;
    queue) words=$(paddock-pg queue 2>/dev/null | awk 'NR > 1 {print $1}') ;;
    provision) words=$(ls "${XDG_CONFIG_HOME:-$HOME/.config}/paddock/pools" 2>/dev/null) ;;
    add) compopt -o filenames; mapfile -t COMPREPLY < <(compgen -f -- "$cur"); return ;;
    esac
  fi
  mapfile -t COMPREPLY < <(compgen -W "$words" -- "$cur")
}
complete -F _paddock_pg paddock-pg
