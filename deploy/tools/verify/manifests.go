package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/json"
	"k8s.io/apimachinery/pkg/util/yaml"
)

// verifyManifests reads Kubernetes manifests as the API server would, strictly: an unknown field, a
// wrong type, or a kind that isn't there is an error.
func verifyManifests(name string) error {
	text, err := os.ReadFile(name)
	if err != nil {
		return err
	}
	return verifyDocuments(text)
}

// verifyDocuments reads each document of a file, and looks whether what refers to another finds it.
func verifyDocuments(text []byte) error {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, appsv1.AddToScheme,
		networkingv1.AddToScheme, policyv1.AddToScheme} {
		if err := add(scheme); err != nil {
			return err
		}
	}
	strict := json.NewSerializerWithOptions(json.DefaultMetaFactory, scheme, scheme,
		json.SerializerOptions{Yaml: true, Strict: true})
	documents := yaml.NewDocumentDecoder(io.NopCloser(bytes.NewReader(text)))
	count := 0
	var pods []corev1.PodTemplateSpec
	var policies []networkingv1.NetworkPolicySpec
	for buf := make([]byte, 1<<20); ; count++ {
		n, err := documents.Read(buf)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
		object, kind, err := strict.Decode(buf[:n], nil, nil)
		if err != nil {
			return fmt.Errorf("document %d: %w", count+1, err)
		}
		switch object := object.(type) {
		case *appsv1.Deployment:
			pods = append(pods, object.Spec.Template)
		case *networkingv1.NetworkPolicy:
			policies = append(policies, object.Spec)
		}
		fmt.Println(kind.Kind, "is valid")
	}
	if count == 0 {
		return errors.New("there is nothing in it")
	}
	for _, pod := range pods {
		if err := errors.Join(verifyPod(pod.Spec), verifySpread(pod),
			verifyPolicies(pod, policies)); err != nil {
			return err
		}
	}
	return nil
}

// selects reports whether a selector of labels finds a pod.
func selects(selector *metav1.LabelSelector, pod corev1.PodTemplateSpec) bool {
	found, err := metav1.LabelSelectorAsSelector(selector)
	return err == nil && found.Matches(labels.Set(pod.Labels))
}

// verifySpread looks whether the pods of a deployment are kept apart.
func verifySpread(pod corev1.PodTemplateSpec) error {
	for _, spread := range pod.Spec.TopologySpreadConstraints {
		if selects(spread.LabelSelector, pod) {
			return nil
		}
	}
	return errors.New("nothing spreads the pods over nodes")
}

// verifyPolicies looks whether each port of a pod has a rule that says who may connect to it.
func verifyPolicies(pod corev1.PodTemplateSpec, policies []networkingv1.NetworkPolicySpec) error {
	ruled := map[string]bool{}
	for _, policy := range policies {
		if !selects(&policy.PodSelector, pod) {
			continue
		}
		for _, rule := range policy.Ingress {
			for _, port := range rule.Ports {
				ruled[port.Port.String()] = len(rule.From) > 0
			}
		}
	}
	for _, c := range pod.Spec.Containers {
		for _, port := range c.Ports {
			if !ruled[port.Name] {
				return fmt.Errorf("no network policy says who may connect to the port %s", port.Name)
			}
		}
	}
	return nil
}

// verifyPod looks whether probes name ports that there are, mounts volumes, and variables files in a
// mount. A secret is a file: as a variable it could not change while the pod runs.
func verifyPod(pod corev1.PodSpec) error {
	volumes := map[string]bool{}
	for _, v := range pod.Volumes {
		volumes[v.Name] = true
	}
	for _, c := range pod.Containers {
		ports := map[string]bool{}
		for _, p := range c.Ports {
			ports[p.Name] = true
		}
		for _, probe := range []*corev1.Probe{c.StartupProbe, c.LivenessProbe, c.ReadinessProbe} {
			if probe == nil || probe.HTTPGet == nil || !ports[probe.HTTPGet.Port.String()] {
				return fmt.Errorf("container %s: a probe is missing, or its port isn't there",
					c.Name)
			}
		}
		for _, variable := range c.Env {
			mounted := !strings.HasSuffix(variable.Name, "_FILE")
			for _, m := range c.VolumeMounts {
				mounted = mounted || strings.HasPrefix(variable.Value, m.MountPath+"/")
			}
			from := variable.ValueFrom
			if !mounted || from != nil && from.SecretKeyRef != nil {
				return fmt.Errorf("container %s: %s is no file that is mounted", c.Name,
					variable.Name)
			}
		}
		for _, m := range c.VolumeMounts {
			if !volumes[m.Name] {
				return fmt.Errorf("container %s: there is no volume %s", c.Name, m.Name)
			}
		}
	}
	return nil
}
