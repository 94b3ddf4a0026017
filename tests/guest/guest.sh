# In the guest, before the lines that `main.rs` adds: two name spaces, A and B, joined by a veth pair with rxe at both
# ends and by one for packet sockets; a third pair of NICs stays where it is. A line measures once, and leaves what
# the program printed in /lab/out under the measurement's name.
set -u
mkdir /lab/out
cd /tmp
# From a shared directory each page of a program is a question to the host.
cp /lab/ndkperf /lab/events /lab/raw /tmp
for side in A B; do ip netns add $side; done
ip link add va netns A type veth peer name vb netns B
ip link add pa netns A type veth peer name pb netns B
ip link add ra type veth peer name rb
# Nobody but us talks there.
for nic in ra rb; do ip link set $nic addrgenmode none mtu 9000 up; done
ip -n A link set pa addrgenmode none
ip -n B link set pb addrgenmode none
ip -n A addr add 10.0.0.1/24 dev va
ip -n B addr add 10.0.0.2/24 dev vb
for side in A:va:pa:rxea B:vb:pb:rxeb; do
    IFS=: read -r name rxe_nic nic rxe <<END
$side
END
    ip -n "$name" link set lo up
    ip -n "$name" link set "$nic" up
    ip -n "$name" link set "$rxe_nic" up
    ip netns exec "$name" rdma link add "$rxe" type rxe netdev "$rxe_nic"
done

# mtu BYTES: from now on
mtu() {
    for nic in va pa; do ip -n A link set $nic mtu "$1"; done
    for nic in vb pb; do ip -n B link set $nic mtu "$1"; done
}

# kept NAME COMMAND...: what the command prints is the measurement's result; $within is where it runs
within=
kept() {
    result=/lab/out/$1
    shift
    # Of the guest's own time. Busybox's `timeout` would take its own `ip`, so it stands behind that.
    if $within timeout 60 "$@" >/tmp/printed 2>/tmp/said; then
        cp /tmp/printed "$result"
    else
        echo "${result##*/} failed: $*"
        cat /tmp/printed /tmp/said /tmp/server
    fi
}

# pair NAME SERVER CLIENT: two command lines
pair() {
    ip netns exec B $2 >/tmp/server 2>&1 &
    server=$!
    usleep 500000
    within="ip netns exec A"
    kept "$1" $3
    within=
    kill $server 2>/dev/null
    wait $server 2>/dev/null
}

# perftest NAME OPERATION SIZE COUNT DEPTH PATH-MTU
perftest() {
    common="-x 1 -F -s $3 -n $4 -t $5 -m $6"
    pair "$1" "ib_$2_bw -d rxeb $common" "ib_$2_bw -d rxea $common 10.0.0.2"
}

# perftest_lat NAME OPERATION SIZE COUNT PATH-MTU: its programs sleep where they can, as a WRITE's does not
perftest_lat() {
    common="-x 1 -F -s $3 -n $4 -m $5"
    [ "$2" = write ] || common="$common -e"
    pair "$1" "ib_$2_lat -d rxeb $common" "ib_$2_lat -d rxea $common 10.0.0.2"
}

# events NAME OPERATION SIZE COUNT DEPTH
events() {
    load="10.0.0.2 $2 $3 $5 $4"
    pair "$1" "/tmp/events serve $load" "/tmp/events connect $load"
}

# ours NAME OPERATION SIZE COUNT DEPTH [FLAG]
ours() {
    edge="--address 10.1.0.2 --edge af-packet:pb"
    load="--operations $2 --size $3 --iterations $4 --depth $5 --no-verify --json"
    # Several completions a notification, as perftest has by default; rxe has no moderation for the other client.
    moderated="--cq-mod $((($5 + 7) / 8))"
    pair "$1" "/tmp/ndkperf serve --runs 1 $edge $moderated ${6-}" \
        "/tmp/ndkperf connect --address 10.1.0.1 --edge af-packet:pa $load $moderated ${6-} 10.1.0.2"
}

# ours_lat NAME OPERATION SIZE COUNT [FLAG]
ours_lat() {
    edge="--address 10.1.0.2 --edge af-packet:pb"
    load="--latency --operations $2 --size $3 --iterations $4 --no-verify --json"
    pair "$1" "/tmp/ndkperf serve --runs 1 $edge ${5-}" \
        "/tmp/ndkperf connect --address 10.1.0.1 --edge af-packet:pa $load ${5-} 10.1.0.2"
}

# loss NAME OPERATION PERCENT SEED
loss() {
    kept "$1" /tmp/ndkperf loopback --operations "$2" --loss "$3" --seed "$4" --size 64k --iterations 600 --depth 16 \
        --mtu 4200 --segments 1 --no-verify --json
}

# burst NAME BYTES COUNT
burst() {
    kept "$1" /tmp/raw burst ra rb "$2" "$3"
}

# echoes NAME BYTES COUNT
echoes() {
    /tmp/raw echo rb "$2" "$3" >/tmp/server 2>&1 &
    server=$!
    usleep 500000
    kept "$1" /tmp/raw ping ra "$2" "$3"
    wait $server
}

: >/tmp/server
