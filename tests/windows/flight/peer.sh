# The Linux guest's part: an RDMA NIC in software, and an SMB server with SMB Direct.
set -eu
ip addr add 192.168.79.101/24 dev eth0
ip link set eth0 up
rdma link add rxe0 type rxe netdev eth0
sh /lab/jobs/ksmbd start
until [ -e /lab/end ]; do
    usleep 500000
done
sh /lab/jobs/ksmbd stop
