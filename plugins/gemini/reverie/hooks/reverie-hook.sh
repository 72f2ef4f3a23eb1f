#!/bin/sh
# Hands an event of a coding agent's hook, which comes on standard input as JSON, to the Reverie of this user.
#
#   reverie-hook.sh claude-code|codex|gemini|cursor|auto     one event
#   reverie-hook.sh deliver                                  what was kept while no server answered
#
# It never fails and never waits longer than its deadline: 0.15 s for a server that does not answer. When a session
# starts, a server that answers has 2 s for its context. What cannot be handed over is kept in a folder and delivered, in
# its order, with the next event that finds a server. Only sh, curl, cat, date and rm are used: starting Python would take longer than everything else together.
#
# REVERIE_URL and REVERIE_TOKEN name a server elsewhere, REVERIE_HOOK_SECONDS another deadline for it; REVERIE_AGENT and
# REVERIE_WORKSPACE say whose memory it is.

umask 077
tool=${1:-auto}
state=${XDG_STATE_HOME:-$HOME/.local/state}/reverie
spool=$state/hooks
# The most that is kept: the number of events, and kilobytes in all.
max_events=5000
max_kilobytes=65536

main() {
    [ -d "$spool" ] || mkdir -p "$spool" 2>/dev/null || { cat >/dev/null; exit 0; }
    if [ "$tool" = deliver ]; then
        find_server && deliver
        exit 0
    fi
    # Codex sets both variables for its plugins, Claude Code only its own.
    [ "$tool" = auto ] && { if [ -n "$PLUGIN_ROOT" ]; then tool=codex; else tool=claude-code; fi; }
    is_double && { cat >/dev/null; no_output; exit 0; }
    now=$(date -u +%Y-%m-%dT%H:%M:%S.%NZ)
    case $now in *N*) now=${now%%.*}Z ;; esac # a date command without nanoseconds
    { read -r id </proc/sys/kernel/random/uuid; } 2>/dev/null || id=$now-$$
    file=$spool/$now.$id.part
    { printf '{"tool":"%s","id":"%s","at":"%s","event":' "$tool" "$id" "$now" && cat && printf '}'; } >"$file" 2>/dev/null ||
        { rm -f "$file"; exit 0; }
    if [ "$2" = start ]; then
        adopt
        if find_server && answers && deliver_in_background && post "$file" "${REVERIE_HOOK_SECONDS:-2}" "$file.out" && [ "$code" = 200 ]; then
            cat "$file.out"
        else
            no_output
        fi
        rm -f "$file" "$file.out"
        exit 0
    fi
    if find_server && ! is_waiting && post "$file" "${REVERIE_HOOK_SECONDS:-0.15}" /dev/null && is_done; then
        rm -f "$file"
    else
        keep
        [ -n "$url" ] && deliver_in_background
    fi
    no_output
    exit 0
}

# Whether this is a plugin's hook, although `reverie connect` has given the tool hooks that hand over the same events.
is_double() {
    [ "$0" != "$state/reverie-hook.sh" ] && [ -e "$state/connected/$tool" ]
}

# Gemini CLI and Cursor want JSON.
no_output() {
    case $tool in gemini | cursor) printf '{}' ;; esac
}

# Set url and token to those of a running server; false if there is none. A server of this user says where it is in a
# file. It counts only while its process lives: whoever has taken its port since gets no token.
find_server() {
    url=${REVERIE_URL%/} token=$REVERIE_TOKEN
    [ -n "$url" ] && [ -n "$token" ] && return 0
    line=
    for entry in "$state"/servers/*.json; do
        [ -s "$entry" ] && [ -O "$entry" ] && read -r line <"$entry" || [ -n "$line" ] || continue
        found=${line#*\"url\":\"} found=${found%%\"*}
        pid=${line#*\"pid\":} pid=${pid%%[!0-9]*}
        if { [ -z "$url" ] || [ "$url" = "$found" ]; } && [ -n "$pid" ] && kill -0 "$pid" 2>/dev/null; then
            token=${line#*\"token\":\"} token=${token%%\"*} url=$found
            return 0
        fi
        line=
    done
    url=
    return 1
}

# Whether the server answers at all: one that hangs would hold up the start of every session for 2 s.
answers() {
    curl -q -s -m "${REVERIE_HOOK_SECONDS:-0.15}" -o /dev/null --noproxy '*' "$url/healthz"
}

# Post a file within some seconds, and set code to the answer's status. The token is not on the command line, where
# other users would see it.
post() {
    code=$(curl -q -s -K - -m "$2" -o "$3" -w '%{http_code}' --noproxy '*' --data-binary "@$1" \
        -H 'Content-Type: application/json' "$url/v1/coding-agents/events" <<EOF 2>/dev/null
header = "Authorization: Bearer $token"
header = "X-Reverie-Agent: ${REVERIE_AGENT:-default}"
header = "X-Reverie-Workspace: ${REVERIE_WORKSPACE:-default}"
EOF
    )
}

# Whether the server has taken an event, or refuses it for good. A missing right or a full quota may change.
is_done() {
    case $code in 2?? | 400 | 404 | 413 | 422) return 0 ;; esac
    return 1
}

is_waiting() {
    for waiting in "$spool"/*.json; do
        [ -e "$waiting" ] && return 0
    done
    return 1
}

# Keep the events of hooks that were killed: a hook lasts only seconds. The server refuses an incomplete event for good.
adopt() {
    find "$spool" -name '*.part.out' -mmin +1 -exec rm -f {} +
    find "$spool" -name '*.part' -mmin +1 | while read -r left; do mv "$left" "${left%.part}.json"; done
} 2>/dev/null

# Keep an event, unless too many are kept already: then it is dropped, as a transcript still has the newest ones.
keep() {
    set -- "$spool"/*.json
    size=$(du -sk "$spool" 2>/dev/null) size=${size%%[!0-9]*}
    if [ $# -ge $max_events ] || [ "${size:-0}" -ge $max_kilobytes ]; then
        rm -f "$file"
        echo "$now" >>"$spool/dropped.log"
    else
        mv "$file" "${file%.part}.json"
    fi
}

# The tool waits until the hook's output is closed, not until the hook ends. So a background job must not hold its pipes
# open; in some shells the redirections of a subshell leave copies of them, hence 3 to 9.
deliver_in_background() {
    is_waiting && {
        (
            exec </dev/null >/dev/null 2>&1 3>&- 4>&- 5>&- 6>&- 7>&- 8>&- 9>&-
            deliver
        ) &
    }
    return 0
}

# Deliver what waits, the oldest first, until the server does not answer. One process does at a time; if it was killed,
# another one may after five minutes.
deliver() {
    [ -z "$(find "$spool/delivering" -maxdepth 0 -mmin +5 2>/dev/null)" ] || rmdir "$spool/delivering" 2>/dev/null
    while is_waiting && mkdir "$spool/delivering" 2>/dev/null; do
        away=
        for one in "$spool"/*.json; do
            if post "$one" "${REVERIE_HOOK_SECONDS:-5}" /dev/null && is_done; then rm -f "$one"; else away=1 && break; fi
        done
        rmdir "$spool/delivering" 2>/dev/null
        [ -z "$away" ] || return 0
    done
}

main "$@"
