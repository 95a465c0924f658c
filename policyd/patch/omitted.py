"""What Go's types of built-in kinds leave out when it has its zero value, and what they never do.

The table of kinds comes from OpenAPI documents, which do not say: this comes from the tags of the
types. What is in no table here is left out if nobody set it and written as it was given, as a
pointer, unless it is required, or a struct that is always there.
"""

from collections.abc import Mapping
from typing import Final

_TEXT: Final = """
admissionregistration/v1.ApplyConfiguration expression
admissionregistration/v1.JSONPatch expression
admissionregistration/v1.MutatingAdmissionPolicy apiVersion kind
admissionregistration/v1.MutatingAdmissionPolicyBinding apiVersion kind
admissionregistration/v1.MutatingAdmissionPolicyBindingSpec policyName
admissionregistration/v1.MutatingAdmissionPolicySpec reinvocationPolicy
admissionregistration/v1.MutatingWebhookConfiguration apiVersion kind
admissionregistration/v1.ParamKind apiVersion kind
admissionregistration/v1.ParamRef name namespace
admissionregistration/v1.ValidatingAdmissionPolicy apiVersion kind
admissionregistration/v1.ValidatingAdmissionPolicyBinding apiVersion kind
admissionregistration/v1.ValidatingAdmissionPolicyBindingSpec policyName validationActions
admissionregistration/v1.ValidatingAdmissionPolicyStatus observedGeneration
admissionregistration/v1.ValidatingWebhookConfiguration apiVersion kind
admissionregistration/v1.Validation message messageExpression
admissionregistration/v1.WebhookClientConfig caBundle
apps/v1.ControllerRevision apiVersion kind
apps/v1.DaemonSet apiVersion kind
apps/v1.DaemonSetCondition message reason
apps/v1.DaemonSetSpec minReadySeconds
apps/v1.DaemonSetStatus numberAvailable numberUnavailable observedGeneration updatedNumberScheduled
apps/v1.DaemonSetUpdateStrategy type
apps/v1.Deployment apiVersion kind
apps/v1.DeploymentCondition message reason
apps/v1.DeploymentSpec minReadySeconds paused
apps/v1.DeploymentStatus availableReplicas observedGeneration readyReplicas replicas
apps/v1.DeploymentStatus unavailableReplicas updatedReplicas
apps/v1.DeploymentStrategy type
apps/v1.ReplicaSet apiVersion kind
apps/v1.ReplicaSetCondition message reason
apps/v1.ReplicaSetSpec minReadySeconds
apps/v1.ReplicaSetStatus availableReplicas fullyLabeledReplicas observedGeneration readyReplicas
apps/v1.StatefulSet apiVersion kind
apps/v1.StatefulSetCondition message reason
apps/v1.StatefulSetPersistentVolumeClaimRetentionPolicy whenDeleted whenScaled
apps/v1.StatefulSetSpec minReadySeconds podManagementPolicy
apps/v1.StatefulSetStatus currentReplicas currentRevision observedGeneration readyReplicas
apps/v1.StatefulSetStatus updateRevision updatedReplicas
apps/v1.StatefulSetUpdateStrategy type
authentication/v1.BoundObjectReference apiVersion kind name uid
authentication/v1.SelfSubjectReview apiVersion kind
authentication/v1.TokenRequest apiVersion kind
authentication/v1.TokenReview apiVersion kind
authentication/v1.TokenReviewSpec token
authentication/v1.TokenReviewStatus authenticated error
authentication/v1.UserInfo uid username
authorization/v1.FieldSelectorAttributes rawSelector
authorization/v1.LabelSelectorAttributes rawSelector
authorization/v1.LocalSubjectAccessReview apiVersion kind
authorization/v1.NonResourceAttributes path verb
authorization/v1.ResourceAttributes group name namespace resource subresource verb version
authorization/v1.SelfSubjectAccessReview apiVersion kind
authorization/v1.SelfSubjectRulesReview apiVersion kind
authorization/v1.SelfSubjectRulesReviewSpec namespace
authorization/v1.SubjectAccessReview apiVersion kind
authorization/v1.SubjectAccessReviewSpec uid user
authorization/v1.SubjectAccessReviewStatus denied evaluationError reason
authorization/v1.SubjectRulesReviewStatus evaluationError
autoscaling/v1.CrossVersionObjectReference apiVersion
autoscaling/v1.HorizontalPodAutoscaler apiVersion kind
autoscaling/v1.Scale apiVersion kind
autoscaling/v1.ScaleSpec replicas
autoscaling/v1.ScaleStatus selector
autoscaling/v2.CrossVersionObjectReference apiVersion
autoscaling/v2.HorizontalPodAutoscaler apiVersion kind
autoscaling/v2.HorizontalPodAutoscalerCondition message reason
autoscaling/v2.HorizontalPodAutoscalerStatus currentReplicas
batch/v1.CronJob apiVersion kind
batch/v1.CronJobSpec concurrencyPolicy
batch/v1.Job apiVersion kind
batch/v1.JobCondition message reason
batch/v1.JobStatus active completedIndexes failed succeeded
certificates/v1.CertificateSigningRequest apiVersion kind
certificates/v1.CertificateSigningRequestCondition message reason
certificates/v1.CertificateSigningRequestSpec uid username
certificates/v1.CertificateSigningRequestStatus certificate
coordination/v1.Lease apiVersion kind
core/v1.AWSElasticBlockStoreVolumeSource fsType partition readOnly
core/v1.AzureFilePersistentVolumeSource readOnly
core/v1.AzureFileVolumeSource readOnly
core/v1.Binding apiVersion kind
core/v1.CSIPersistentVolumeSource fsType readOnly
core/v1.CephFSPersistentVolumeSource path readOnly secretFile user
core/v1.CephFSVolumeSource path readOnly secretFile user
core/v1.CinderPersistentVolumeSource fsType readOnly
core/v1.CinderVolumeSource fsType readOnly
core/v1.ComponentCondition error message
core/v1.ComponentStatus apiVersion kind
core/v1.ConfigMap apiVersion kind
core/v1.ConfigMapEnvSource name
core/v1.ConfigMapKeySelector name
core/v1.ConfigMapNodeConfigSource resourceVersion uid
core/v1.ConfigMapProjection name
core/v1.ConfigMapVolumeSource name
core/v1.Container image imagePullPolicy stdin stdinOnce terminationMessagePath
core/v1.Container terminationMessagePolicy tty workingDir
core/v1.ContainerImage sizeBytes
core/v1.ContainerPort hostIP hostPort name protocol
core/v1.ContainerRestartRule action
core/v1.ContainerRestartRuleOnExitCodes operator
core/v1.ContainerStateTerminated containerID message reason signal
core/v1.ContainerStateWaiting message reason
core/v1.ContainerStatus containerID
core/v1.EmptyDirVolumeSource medium
core/v1.EndpointAddress hostname
core/v1.EndpointPort name protocol
core/v1.Endpoints apiVersion kind
core/v1.EnvFromSource prefix
core/v1.EnvVar value
core/v1.EphemeralContainer image imagePullPolicy stdin stdinOnce targetContainerName
core/v1.EphemeralContainer terminationMessagePath terminationMessagePolicy tty workingDir
core/v1.Event action apiVersion count kind message reason type
core/v1.EventSeries count
core/v1.EventSource component host
core/v1.FCVolumeSource fsType readOnly
core/v1.FlexPersistentVolumeSource fsType readOnly
core/v1.FlexVolumeSource fsType readOnly
core/v1.FlockerVolumeSource datasetName datasetUUID
core/v1.GCEPersistentDiskVolumeSource fsType partition readOnly
core/v1.GitRepoVolumeSource directory revision
core/v1.GlusterfsPersistentVolumeSource readOnly
core/v1.GlusterfsVolumeSource readOnly
core/v1.HTTPGetAction host path scheme
core/v1.ISCSIPersistentVolumeSource chapAuthDiscovery chapAuthSession fsType iscsiInterface readOnly
core/v1.ISCSIVolumeSource chapAuthDiscovery chapAuthSession fsType iscsiInterface readOnly
core/v1.ImageVolumeSource pullPolicy reference
core/v1.ImageVolumeStatus imageRef
core/v1.LimitRange apiVersion kind
core/v1.LoadBalancerIngress hostname ip
core/v1.LocalObjectReference name
core/v1.ModifyVolumeStatus targetVolumeAttributesClassName
core/v1.NFSVolumeSource readOnly
core/v1.Namespace apiVersion kind
core/v1.NamespaceCondition message reason
core/v1.NamespaceStatus phase
core/v1.Node apiVersion kind
core/v1.NodeCondition message reason
core/v1.NodeConfigStatus error
core/v1.NodeSpec externalID podCIDR providerID unschedulable
core/v1.NodeStatus phase
core/v1.ObjectFieldSelector apiVersion
core/v1.ObjectReference apiVersion fieldPath kind name namespace resourceVersion uid
core/v1.PersistentVolume apiVersion kind
core/v1.PersistentVolumeClaim apiVersion kind
core/v1.PersistentVolumeClaimCondition message reason
core/v1.PersistentVolumeClaimSpec volumeName
core/v1.PersistentVolumeClaimStatus phase
core/v1.PersistentVolumeClaimVolumeSource readOnly
core/v1.PersistentVolumeSpec persistentVolumeReclaimPolicy storageClassName
core/v1.PersistentVolumeStatus message phase reason
core/v1.PhotonPersistentDiskVolumeSource fsType
core/v1.Pod apiVersion kind
core/v1.PodCertificateProjection certificateChainPath credentialBundlePath keyPath keyType
core/v1.PodCertificateProjection signerName
core/v1.PodCondition message observedGeneration reason
core/v1.PodDNSConfigOption name
core/v1.PodSpec dnsPolicy hostIPC hostNetwork hostPID hostname nodeName priorityClassName
core/v1.PodSpec restartPolicy schedulerName serviceAccount serviceAccountName subdomain
core/v1.PodStatus hostIP message nominatedNodeName observedGeneration phase podIP qosClass reason
core/v1.PodStatus resize
core/v1.PodTemplate apiVersion kind
core/v1.PortworxVolumeSource fsType readOnly
core/v1.Probe failureThreshold initialDelaySeconds periodSeconds successThreshold timeoutSeconds
core/v1.QuobyteVolumeSource group readOnly tenant user
core/v1.RBDPersistentVolumeSource fsType keyring pool readOnly user
core/v1.RBDVolumeSource fsType keyring pool readOnly user
core/v1.ReplicationController apiVersion kind
core/v1.ReplicationControllerCondition message reason
core/v1.ReplicationControllerSpec minReadySeconds
core/v1.ReplicationControllerStatus availableReplicas fullyLabeledReplicas observedGeneration
core/v1.ReplicationControllerStatus readyReplicas
core/v1.ResourceClaim request
core/v1.ResourceFieldSelector containerName
core/v1.ResourceHealth health
core/v1.ResourceQuota apiVersion kind
core/v1.SELinuxOptions level role type user
core/v1.ScaleIOPersistentVolumeSource fsType protectionDomain readOnly sslEnabled storageMode
core/v1.ScaleIOPersistentVolumeSource storagePool volumeName
core/v1.ScaleIOVolumeSource fsType protectionDomain readOnly sslEnabled storageMode storagePool
core/v1.ScaleIOVolumeSource volumeName
core/v1.Secret apiVersion kind type
core/v1.SecretEnvSource name
core/v1.SecretKeySelector name
core/v1.SecretProjection name
core/v1.SecretReference name namespace
core/v1.SecretVolumeSource secretName
core/v1.Service apiVersion kind
core/v1.ServiceAccount apiVersion kind
core/v1.ServiceAccountTokenProjection audience
core/v1.ServicePort name nodePort protocol
core/v1.ServiceSpec clusterIP externalName externalTrafficPolicy healthCheckNodePort loadBalancerIP
core/v1.ServiceSpec publishNotReadyAddresses sessionAffinity type
core/v1.StorageOSPersistentVolumeSource fsType readOnly volumeName volumeNamespace
core/v1.StorageOSVolumeSource fsType readOnly volumeName volumeNamespace
core/v1.TCPSocketAction host
core/v1.Taint value
core/v1.Toleration effect key operator value
core/v1.VolumeMount readOnly subPath subPathExpr
core/v1.VolumeMountStatus readOnly
core/v1.VsphereVirtualDiskVolumeSource fsType storagePolicyID storagePolicyName
discovery/v1.EndpointSlice apiVersion kind
events/v1.Event action apiVersion deprecatedCount kind note reason reportingController
events/v1.Event reportingInstance type
flowcontrol/v1.FlowSchema apiVersion kind
flowcontrol/v1.FlowSchemaCondition message reason status type
flowcontrol/v1.PriorityLevelConfiguration apiVersion kind
flowcontrol/v1.PriorityLevelConfigurationCondition message reason status type
flowcontrol/v1.ResourcePolicyRule clusterScope
meta/v1.Condition observedGeneration
meta/v1.DeleteOptions apiVersion kind
meta/v1.ListMeta continue resourceVersion selfLink
meta/v1.ManagedFieldsEntry apiVersion fieldsType manager operation subresource
meta/v1.ObjectMeta generateName generation name namespace resourceVersion selfLink uid
meta/v1.Status apiVersion code kind message reason status
meta/v1.StatusCause field message reason
meta/v1.StatusDetails group kind name retryAfterSeconds uid
networking/v1.HTTPIngressPath path
networking/v1.IPAddress apiVersion kind
networking/v1.IPAddressSpec parentRef
networking/v1.Ingress apiVersion kind
networking/v1.IngressClass apiVersion kind
networking/v1.IngressClassSpec controller
networking/v1.IngressLoadBalancerIngress hostname ip
networking/v1.IngressRule host
networking/v1.IngressTLS secretName
networking/v1.NetworkPolicy apiVersion kind
networking/v1.ParentReference group name namespace resource
networking/v1.ServiceBackendPort name number
networking/v1.ServiceCIDR apiVersion kind
node/v1.RuntimeClass apiVersion kind
policy/v1.Eviction apiVersion kind
policy/v1.PodDisruptionBudget apiVersion kind
policy/v1.PodDisruptionBudgetStatus observedGeneration
rbac/v1.ClusterRole apiVersion kind
rbac/v1.ClusterRoleBinding apiVersion kind
rbac/v1.Role apiVersion kind
rbac/v1.RoleBinding apiVersion kind
rbac/v1.Subject apiGroup namespace
resource/v1.CapacityRequestPolicyRange min
resource/v1.CounterSet counters
resource/v1.DeviceClass apiVersion kind
resource/v1.DeviceCounterConsumption counters
resource/v1.DeviceSubRequest allocationMode count
resource/v1.DeviceTaint value
resource/v1.DeviceToleration effect key operator value
resource/v1.ExactDeviceRequest allocationMode count
resource/v1.NetworkDeviceData hardwareAddress interfaceName
resource/v1.ResourceClaim apiVersion kind
resource/v1.ResourceClaimConsumerReference apiGroup
resource/v1.ResourceClaimTemplate apiVersion kind
resource/v1.ResourceSlice apiVersion kind
scheduling/v1.PriorityClass apiVersion description globalDefault kind
storage/v1.CSIDriver apiVersion kind
storage/v1.CSINode apiVersion kind
storage/v1.CSIStorageCapacity apiVersion kind
storage/v1.StorageClass apiVersion kind
storage/v1.VolumeAttachment apiVersion kind
storage/v1.VolumeAttributesClass apiVersion kind
storage/v1.VolumeError message
"""


_NULLS: Final = """
admissionregistration/v1.MutatingWebhook sideEffects
admissionregistration/v1.ValidatingWebhook sideEffects
apps/v1.ControllerRevision data
apps/v1.DaemonSetCondition lastTransitionTime
apps/v1.DeploymentCondition lastTransitionTime lastUpdateTime
apps/v1.ReplicaSetCondition lastTransitionTime
apps/v1.StatefulSetCondition lastTransitionTime
authentication/v1.TokenRequestSpec audiences boundObjectRef expirationSeconds
authentication/v1.TokenRequestStatus expirationTimestamp
autoscaling/v2.HorizontalPodAutoscalerCondition lastTransitionTime
autoscaling/v2.HorizontalPodAutoscalerStatus currentMetrics
certificates/v1.CertificateSigningRequestCondition lastTransitionTime lastUpdateTime
core/v1.AzureFilePersistentVolumeSource secretNamespace
core/v1.ContainerImage names
core/v1.EventSeries lastObservedTime
core/v1.GRPCAction service
core/v1.NamespaceCondition lastTransitionTime
core/v1.PersistentVolumeClaimCondition lastProbeTime lastTransitionTime
core/v1.ProjectedVolumeSource sources
core/v1.ReplicationControllerCondition lastTransitionTime
core/v1.TypedLocalObjectReference apiGroup
core/v1.TypedObjectReference apiGroup
discovery/v1.EndpointSlice endpoints ports
flowcontrol/v1.FlowSchemaCondition lastTransitionTime
flowcontrol/v1.LimitedPriorityLevelConfiguration nominalConcurrencyShares
flowcontrol/v1.PriorityLevelConfigurationCondition lastTransitionTime
flowcontrol/v1.ResourcePolicyRule namespaces
networking/v1.HTTPIngressPath pathType
networking/v1.IngressClassParametersReference scope
resource/v1.AllocatedDeviceStatus conditions
resource/v1.CapacityRequestPolicy default
resource/v1.DeviceClaim requests
storage/v1.CSINodeDriver topologyKeys
storage/v1.VolumeError time
"""

_ZEROS: Final = """
apps/v1.StatefulSetOrdinals start
apps/v1.StatefulSetSpec serviceName
authentication/v1.TokenRequestStatus token
batch/v1.PodFailurePolicyOnPodConditionsPattern status
core/v1.NodeRuntimeHandler name
core/v1.ServicePort targetPort
flowcontrol/v1.FlowSchemaSpec matchingPrecedence
flowcontrol/v1.QueuingConfiguration handSize queueLengthLimit queues
policy/v1.PodDisruptionBudgetStatus currentHealthy desiredHealthy disruptionsAllowed expectedPods
rbac/v1.RoleRef apiGroup
scheduling/v1.PriorityClass value
"""


def _parsed(text: str) -> Mapping[str, tuple[str, ...]]:
    """Read a table with a struct and some of its fields on each line."""
    table: dict[str, tuple[str, ...]] = {}
    for line in text.strip().splitlines():
        struct, *names = line.split()
        table[struct] = (*table.get(struct, ()), *names)
    return table


OMITTED: Final = _parsed(_TEXT)
"""The fields whose zero value is as good as none, by struct."""

NULLS: Final = _parsed(_NULLS)
"""The fields that are written as null if nobody set them."""

WRITTEN: Final = _parsed(_ZEROS)
"""The fields that are written with their zero value."""
