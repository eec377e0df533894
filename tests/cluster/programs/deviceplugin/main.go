// Deviceplugin offers devices that do not exist to a kubelet, the way NVIDIA's device plugin offers real ones.
//
// Each resource is a plugin of its own, as the kubelet wants it. A container that is given devices finds their ids in
// NVIDIA_VISIBLE_DEVICES, and nothing else: no device node, no mount. Tests say through a Unix socket which devices are
// lost, and which allocation is refused. It registers again whenever a new kubelet has made its socket.
package main

import (
	"flag"
	"fmt"
	"log"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	api "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

// resources collects the repeated flag --resource name=count.
type resources map[string]int

func (r resources) String() string { return fmt.Sprint(map[string]int(r)) }

func (r resources) Set(text string) error {
	name, number, found := strings.Cut(text, "=")
	count, err := strconv.Atoi(number)
	if !found || name == "" || err != nil || count < 1 {
		return fmt.Errorf("%q is not name=count", text)
	}
	r[name] = count
	return nil
}

func main() {
	wanted := resources{}
	flag.Var(wanted, "resource", "a resource and how many devices of it, as nvidia.com/mig-1g.5gb=5; repeatable")
	folder := flag.String("folder", api.DevicePluginPath, "the kubelet's folder for device plugins")
	control := flag.String("control", "", "the Unix socket by which tests say what happens to the devices")
	flag.Parse()
	if len(wanted) == 0 || *control == "" {
		log.Fatal("--resource and --control are needed")
	}
	refusal := &refusal{}
	pools := map[string]*pool{}
	for name, count := range wanted {
		pools[name] = newPool(name, count, refusal)
	}
	listener, err := listen(*control)
	if err != nil {
		log.Fatal(err)
	}
	go answer(listener, pools, refusal)
	for _, one := range pools {
		go keepRegistered(one, *folder)
	}
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM)
	<-signals
	for _, one := range pools {
		one.stop()
		_ = os.Remove(filepath.Join(*folder, one.socketName()))
	}
	_ = os.Remove(*control)
}
