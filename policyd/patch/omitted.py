"""The fields of built-in kinds that Go's types leave out when they have their zero value.

The table of kinds comes from OpenAPI documents, which do not say. What is not here is a pointer in
Go, and is written as it was given, or is always written.
"""

from collections.abc import Mapping
from typing import Final

_TEXT: Final = """
apps/v1.DaemonSetSpec minReadySeconds
apps/v1.DaemonSetStatus numberAvailable numberUnavailable observedGeneration updatedNumberScheduled
apps/v1.DaemonSetUpdateStrategy type
apps/v1.DeploymentSpec minReadySeconds paused
apps/v1.DeploymentStatus availableReplicas observedGeneration readyReplicas replicas
apps/v1.DeploymentStatus unavailableReplicas updatedReplicas
apps/v1.DeploymentStrategy type
apps/v1.ReplicaSetSpec minReadySeconds
apps/v1.ReplicaSetStatus availableReplicas fullyLabeledReplicas observedGeneration readyReplicas
apps/v1.StatefulSetPersistentVolumeClaimRetentionPolicy whenDeleted whenScaled
apps/v1.StatefulSetSpec minReadySeconds podManagementPolicy
apps/v1.StatefulSetStatus currentReplicas currentRevision observedGeneration readyReplicas
apps/v1.StatefulSetStatus updateRevision updatedReplicas
apps/v1.StatefulSetUpdateStrategy type
autoscaling/v1.ScaleSpec replicas
autoscaling/v1.ScaleStatus selector
batch/v1.CronJobSpec concurrencyPolicy
batch/v1.JobStatus active completedIndexes failed succeeded
core/v1.AWSElasticBlockStoreVolumeSource fsType partition readOnly
core/v1.AzureFileVolumeSource readOnly
core/v1.CSIPersistentVolumeSource fsType readOnly
core/v1.CephFSVolumeSource path readOnly secretFile user
core/v1.CinderVolumeSource fsType readOnly
core/v1.ConfigMapEnvSource name
core/v1.ConfigMapKeySelector name
core/v1.ConfigMapProjection name
core/v1.ConfigMapVolumeSource name
core/v1.Container image imagePullPolicy stdin stdinOnce terminationMessagePath
core/v1.Container terminationMessagePolicy tty workingDir
core/v1.ContainerPort hostIP hostPort name protocol
core/v1.ContainerStateTerminated containerID message reason signal
core/v1.ContainerStateWaiting message reason
core/v1.ContainerStatus containerID
core/v1.EmptyDirVolumeSource medium
core/v1.EnvFromSource prefix
core/v1.EnvVar value
core/v1.EphemeralContainer image imagePullPolicy stdin stdinOnce targetContainerName
core/v1.EphemeralContainer terminationMessagePath terminationMessagePolicy tty workingDir
core/v1.FCVolumeSource fsType readOnly
core/v1.FlexVolumeSource fsType readOnly
core/v1.GCEPersistentDiskVolumeSource fsType partition readOnly
core/v1.GitRepoVolumeSource directory revision
core/v1.GlusterfsVolumeSource readOnly
core/v1.HTTPGetAction host path scheme
core/v1.ISCSIVolumeSource chapAuthDiscovery chapAuthSession fsType iscsiInterface readOnly
core/v1.ImageVolumeSource pullPolicy reference
core/v1.LoadBalancerIngress hostname ip
core/v1.LocalObjectReference name
core/v1.NFSVolumeSource readOnly
core/v1.NamespaceStatus phase
core/v1.NodeSpec externalID podCIDR providerID unschedulable
core/v1.ObjectFieldSelector apiVersion
core/v1.ObjectReference apiVersion fieldPath kind name namespace resourceVersion uid
core/v1.PersistentVolumeClaimSpec volumeName
core/v1.PersistentVolumeClaimStatus phase
core/v1.PersistentVolumeClaimVolumeSource readOnly
core/v1.PersistentVolumeSpec persistentVolumeReclaimPolicy storageClassName
core/v1.PersistentVolumeStatus message phase reason
core/v1.PodSpec dnsPolicy hostIPC hostNetwork hostPID hostname nodeName priorityClassName
core/v1.PodSpec restartPolicy schedulerName serviceAccount serviceAccountName subdomain
core/v1.PodStatus hostIP message nominatedNodeName phase podIP qosClass reason resize
core/v1.PortworxVolumeSource fsType readOnly
core/v1.Probe failureThreshold initialDelaySeconds periodSeconds successThreshold timeoutSeconds
core/v1.QuobyteVolumeSource group readOnly tenant user
core/v1.RBDVolumeSource fsType keyring pool readOnly user
core/v1.ReplicationControllerSpec minReadySeconds
core/v1.ResourceFieldSelector containerName
core/v1.SELinuxOptions level role type user
core/v1.ScaleIOVolumeSource fsType protectionDomain readOnly sslEnabled storageMode storagePool
core/v1.ScaleIOVolumeSource volumeName
core/v1.Secret type
core/v1.SecretEnvSource name
core/v1.SecretKeySelector name
core/v1.SecretProjection name
core/v1.SecretReference name namespace
core/v1.SecretVolumeSource secretName
core/v1.ServiceAccountTokenProjection audience
core/v1.ServicePort name nodePort protocol
core/v1.ServiceSpec clusterIP externalName externalTrafficPolicy healthCheckNodePort
core/v1.ServiceSpec loadBalancerIP publishNotReadyAddresses sessionAffinity type
core/v1.StorageOSVolumeSource fsType readOnly volumeName volumeNamespace
core/v1.TCPSocketAction host
core/v1.Taint value
core/v1.Toleration effect key operator value
core/v1.VolumeMount readOnly subPath subPathExpr
core/v1.VsphereVirtualDiskVolumeSource fsType storagePolicyID storagePolicyName
meta/v1.ManagedFieldsEntry apiVersion fieldsType manager operation subresource
meta/v1.ObjectMeta generateName generation name namespace resourceVersion selfLink uid
networking/v1.HTTPIngressPath path
networking/v1.IngressRule host
networking/v1.IngressTLS secretName
networking/v1.ServiceBackendPort name number
rbac/v1.Subject apiGroup namespace
scheduling/v1.PriorityClass description globalDefault
"""


def _parsed(text: str) -> Mapping[str, tuple[str, ...]]:
    table: dict[str, tuple[str, ...]] = {}
    for line in text.strip().splitlines():
        struct, *names = line.split()
        table[struct] = (*table.get(struct, ()), *names)
    return table


OMITTED: Final = _parsed(_TEXT)
"""The fields whose zero value is as good as none, by struct."""
